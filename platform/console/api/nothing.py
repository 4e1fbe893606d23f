"""What the control API answers where it has nothing: a problem, not a page."""

from typing import Any

from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.views import APIView

__all__ = ["Nothing"]


class Nothing(APIView):
    """404 for everybody and every method."""

    authentication_classes = []
    permission_classes = []
    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise exceptions.NotFound
