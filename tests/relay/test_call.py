"""An attempt as it stands in the call record."""

import msgspec

from relay.call import Attempt


def shown(attempt: Attempt) -> dict[str, object]:
    return msgspec.to_builtins(attempt)


def test_an_attempt_that_answered() -> None:
    assert shown(Attempt("up", "m-there", http_status=200, ms=1.235)) == {
        "upstream": "up", "upstream_model": "m-there", "result": "ok", "ms": 1.235, "http_status": 200,
    }  # fmt: skip


def test_an_attempt_that_never_got_a_status() -> None:
    failed = shown(Attempt("up", "m-there", "upstream_unreachable"))
    assert failed["result"] == "upstream_unreachable"
    assert "http_status" not in failed
