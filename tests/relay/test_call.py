"""An attempt as it stands in the call record."""

from relay.call import Attempt


def test_an_attempt_that_answered() -> None:
    assert Attempt(7, "up", "m-there", http_status=200, ms=1.23456).shown() == {
        "upstream": "up", "upstream_model": "m-there", "result": "ok", "ms": 1.235, "http_status": 200,
    }  # fmt: skip


def test_an_attempt_that_never_got_a_status() -> None:
    shown = Attempt(7, "up", "m-there", kind="upstream_unreachable").shown()
    assert shown["result"] == "upstream_unreachable"
    assert "http_status" not in shown
