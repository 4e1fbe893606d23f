"""How the schema describes refusals."""

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers

__all__ = ["refusals"]


class ProblemErrorSerializer(serializers.Serializer):
    name = serializers.CharField(help_text="The parameter or field.")
    reason = serializers.CharField()


class ProblemSerializer(serializers.Serializer):
    """RFC 9457."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField()
    errors = ProblemErrorSerializer(many=True, required=False)  # type: ignore[assignment] # a field of that name


_WORDS = {
    400: "A parameter or field cannot be taken; `errors` names it.",
    401: "No key, or one that is unknown, revoked or expired.",
    403: "The key or the role does not include this.",
    404: "There is none, or it is another organization's.",
    409: "It contradicts what there is already.",
    415: "The body is not JSON.",
}


def refusals(*statuses: int) -> dict[tuple[int, str], OpenApiResponse]:
    """Entries of `extend_schema(responses=...)` for these statuses, beside 401 and 403, which every call may get."""
    return {
        (status, "application/problem+json"): OpenApiResponse(ProblemSerializer, _WORDS[status])
        for status in sorted({401, 403, *statuses})
    }
