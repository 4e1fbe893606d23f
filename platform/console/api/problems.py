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
    413: "The body is too large.",
    415: "The body is not JSON.",
    503: "The database does not answer; `retry-after` says when to try again.",
}


def refusals(*statuses: int) -> dict[tuple[int, str], OpenApiResponse]:
    """Entries of `extend_schema(responses=...)` for these statuses, beside those that every call may get.

    413 belongs to 415: calls that take a body.
    """
    always = {401, 403, 503} | ({413} if 415 in statuses else set())
    return {
        (status, "application/problem+json"): OpenApiResponse(ProblemSerializer, _WORDS[status])
        for status in sorted({*always, *statuses})
    }
