"""Pure. The one error of this package: a request is refused, with what a provider would say.

`Refusal` is raised while a request is read and rendered by the request's form. `DEFAULTS` says which type and
code a bare status gets; the pairs are OpenAI's.
"""

DEFAULTS: dict[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "server_is_overloaded"),
}


class Refusal(Exception):
    """Why a request gets no answer: HTTP status, words, and the wire's type, code and parameter."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        error_type: str | None = None,
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        usual = DEFAULTS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
        self.status = status
        self.message = message
        self.error_type = error_type or usual[0]
        self.code = code if code is not None else usual[1]
        self.param = param
