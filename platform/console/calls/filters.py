"""What a list of calls is narrowed to, read from the words of an address. No database, no clock.

The same words serve the page and the control API (design: `from`, `to`, `model`, `key`, `member`, `status`,
`error_kind`, `task_id`, `min_ttft_ms`, `min_total_ms`, `stream`). A word that cannot be read is an error that names
it, never ignored: a filter that silently does nothing shows the wrong calls.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from django.utils.translation import gettext as _

from billing.models import CallStatus

__all__ = ["FILTER_NAMES", "BadFilters", "CallFilters", "parse_filters", "parse_moment"]

_MAX_TEXT = 200
# A plus sign in an address is read as a blank unless it is escaped; a zone such as +08:00 rarely is.
_LOST_PLUS = re.compile(r" (?=\d{2}:?\d{2}$)")


class BadFilters(ValueError):
    """Some words could not be read: `errors` says for each name why."""

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in errors.items()))
        self.errors = errors


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilters:
    """None or empty means not narrowed. `start` is included, `end` is not."""

    start: datetime | None = None
    end: datetime | None = None
    model: str = ""
    key: str = ""
    member: str = ""
    statuses: tuple[str, ...] = ()
    error_kind: str = ""
    task_id: str = ""
    min_ttft_ms: float | None = None
    min_total_ms: float | None = None
    stream: bool | None = None


def parse_filters(words: Mapping[str, str], zone: tzinfo) -> CallFilters:
    """The filters that these words ask for. A time without a zone is in `zone`. Raises BadFilters."""
    errors: dict[str, str] = {}
    values: dict[str, object] = {}
    for name, (field, read) in _READERS.items():
        text = words.get(name, "").strip()
        if not text:
            continue
        try:
            values[field] = read(text, zone)
        except ValueError as exc:
            errors[name] = str(exc)
    start, end = values.get("start"), values.get("end")
    if isinstance(start, datetime) and isinstance(end, datetime) and start >= end:
        errors["to"] = _("must be later than the beginning of the range")
    if errors:
        raise BadFilters(errors)
    return CallFilters(**values)  # type: ignore[arg-type]  # each reader returns the type of its field


def parse_moment(text: str, zone: tzinfo) -> datetime:
    """The moment in an ISO 8601 text, in UTC. Without an offset it is read in `zone`. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(_LOST_PLUS.sub("+", text))
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise ValueError(_("must be a date or a time in ISO 8601, such as 2026-12-01T08:30:00Z")) from exc


def _text(text: str, _zone: tzinfo) -> str:
    if len(text) > _MAX_TEXT or "\x00" in text:
        raise ValueError(_("must be at most %d characters") % _MAX_TEXT)
    return text


def _statuses(text: str, _zone: tzinfo) -> tuple[str, ...]:
    chosen = tuple(part.strip() for part in text.split(","))
    if any(status not in CallStatus.values for status in chosen):
        raise ValueError(_("must be one of: %s") % ", ".join(CallStatus.values))
    return chosen


def _milliseconds(text: str, _zone: tzinfo) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value < math.inf):
        raise ValueError(_("must be a number of milliseconds, 0 or more"))
    return value


def _flag(text: str, _zone: tzinfo) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError(_("must be true or false"))
    return text.lower() in ("true", "1")


_READERS: dict[str, tuple[str, Callable[[str, tzinfo], object]]] = {
    "from": ("start", parse_moment),
    "to": ("end", parse_moment),
    "model": ("model", _text),
    "key": ("key", _text),
    "member": ("member", _text),
    "status": ("statuses", _statuses),
    "error_kind": ("error_kind", _text),
    "task_id": ("task_id", _text),
    "min_ttft_ms": ("min_ttft_ms", _milliseconds),
    "min_total_ms": ("min_total_ms", _milliseconds),
    "stream": ("stream", _flag),
}
FILTER_NAMES = tuple(_READERS)

RANGES: dict[str, timedelta] = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
