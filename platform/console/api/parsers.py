"""Bodies of the console's APIs: JSON, no larger than Django takes and no deeper than Python's parser goes."""

import io
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

__all__ = ["BodyParser"]


class BodyParser(JSONParser):
    """REST framework's reads past `DATA_UPLOAD_MAX_MEMORY_SIZE`, and breaks on deep nesting."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Raises RequestDataTooBig and ParseError."""
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(most + 1)
        if len(body) > most:
            raise RequestDataTooBig
        try:
            return super().parse(io.BytesIO(body), media_type, parser_context)
        except RecursionError as exc:
            raise ParseError(_("The body is nested too deeply.")) from exc
