"""Pure. The table of dialects: wire form by endpoint. A new form is a folder beside these and a row here."""

from collections.abc import Mapping

import orjson

from relay.protocols.dialect import Dialect, ErrorForm
from relay.protocols.openai_answer import answer_error
from relay.protocols.openai_chat import errors as openai_errors
from relay.protocols.openai_chat import events as chat
from relay.protocols.openai_chat import request as chat_request
from relay.protocols.openai_chat import usage as chat_usage
from relay.protocols.openai_completions import events as completions
from relay.protocols.openai_completions import request as completions_request
from relay.protocols.openai_completions import usage as completions_usage
from relay.protocols.openai_embeddings import events as embeddings
from relay.protocols.openai_embeddings import request as embeddings_request
from relay.protocols.openai_embeddings import usage as embeddings_usage

__all__ = ["DIALECTS"]

_OPENAI_ERRORS = ErrorForm(
    status=openai_errors.error_status,
    headers=openai_errors.error_headers,
    body=openai_errors.error_body,
    event=openai_errors.error_event,
)

_ROWS = (
    Dialect(
        endpoint="/v1/chat/completions",
        protocol="openai",
        kind="chat",
        upstream_path="/chat/completions",
        parse_request=chat_request.parse_request,
        make_body=chat_request.upstream_body,
        make_stream=chat.ChatStream,
        read_answer=orjson.loads,
        answer_error=answer_error,
        is_complete=chat.is_complete_answer,
        finish_of=chat.finish_of_answer,
        usage_of=chat_usage.reported_usage,
        output_bytes=chat.output_bytes,
        errors=_OPENAI_ERRORS,
    ),
    Dialect(
        endpoint="/v1/completions",
        protocol="openai",
        kind="chat",
        upstream_path="/completions",
        parse_request=completions_request.parse_request,
        make_body=completions_request.upstream_body,
        make_stream=completions.CompletionStream,
        read_answer=orjson.loads,
        answer_error=answer_error,
        is_complete=completions.is_complete_answer,
        finish_of=completions.finish_of_answer,
        usage_of=completions_usage.reported_usage,
        output_bytes=completions.output_bytes,
        errors=_OPENAI_ERRORS,
    ),
    Dialect(
        endpoint="/v1/embeddings",
        protocol="openai",
        kind="embedding",
        upstream_path="/embeddings",
        parse_request=embeddings_request.parse_request,
        make_body=embeddings_request.upstream_body,
        make_stream=None,
        read_answer=embeddings.read_answer,
        answer_error=answer_error,
        is_complete=embeddings.is_complete_answer,
        finish_of=embeddings.finish_of_answer,
        usage_of=embeddings_usage.reported_usage,
        output_bytes=embeddings.output_bytes,
        errors=_OPENAI_ERRORS,
    ),
)

DIALECTS: Mapping[str, Dialect] = {row.endpoint: row for row in _ROWS}
"""By the endpoint that a client's path means (`consumers.paths`)."""
