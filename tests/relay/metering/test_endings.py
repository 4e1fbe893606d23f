"""Who pays in which ending: every row of the table."""

import pytest

from relay.metering.endings import charged_usage
from relay.protocols.usage import Usage

REPORTED = Usage(uncached_input=10, cached_input=4, output=5, reasoning=2)
ESTIMATED = Usage(uncached_input=9, output=3, source="estimated")
PARTIAL = Usage(uncached_input=10, cached_input=4, output=5, reasoning=2, source="partial")
INPUT_ONLY = Usage(uncached_input=10, cached_input=4, source="partial")
NOTHING = Usage(source="")

TABLE = [
    # status, content sent, reported -> usage, charged
    ("ok", True, REPORTED, REPORTED, True),
    ("ok", True, None, ESTIMATED, True),
    ("ok", False, REPORTED, REPORTED, True),
    ("client_gone", True, REPORTED, PARTIAL, True),
    ("client_gone", True, None, ESTIMATED, True),
    ("client_gone", False, REPORTED, INPUT_ONLY, True),
    ("client_gone", False, None, NOTHING, False),
    ("upstream_error", True, REPORTED, PARTIAL, True),
    ("upstream_error", True, None, ESTIMATED, True),
    ("upstream_error", False, REPORTED, REPORTED, False),
    ("upstream_error", False, None, NOTHING, False),
    ("refused", True, REPORTED, PARTIAL, True),
    ("refused", True, None, ESTIMATED, True),
    ("refused", False, None, NOTHING, False),
    ("interrupted", True, REPORTED, REPORTED, False),
    ("interrupted", True, None, NOTHING, False),
    ("interrupted", False, None, NOTHING, False),
    ("client_error", False, None, NOTHING, False),
]


@pytest.mark.parametrize(("status", "committed", "counted", "usage", "is_charged"), TABLE)
def test_the_table(
    status: str, committed: bool, counted: Usage | None, usage: Usage, is_charged: bool
) -> None:
    found = charged_usage(status, committed=committed, counted=counted, estimate=lambda: ESTIMATED)
    assert found == (usage, is_charged)


def test_nobody_estimates_what_was_reported() -> None:
    def never() -> Usage:
        raise AssertionError

    for status, committed, counted, _, _ in TABLE:
        if counted is not None:
            charged_usage(status, committed=committed, counted=counted, estimate=never)
