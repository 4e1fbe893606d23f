"""Pure. The JSON of a record, and text inside it that fits what PostgreSQL can store: no NUL, no lone surrogate."""

from typing import Any

import msgspec

from billing.records import CallRecord

__all__ = ["encode_record", "storable", "storable_text"]

_ENCODER = msgspec.json.Encoder()


def storable_text(text: str) -> str:
    r"""`text` without NUL characters; a lone surrogate becomes a question mark.

    >>> storable_text("a\0b")
    'ab'
    """
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def encode_record(record: CallRecord) -> bytes:
    """One line of JSON. A lone surrogate in one of its texts becomes a question mark."""
    try:
        return _ENCODER.encode(record)
    except UnicodeEncodeError:
        return _ENCODER.encode(storable(record))


def storable(record: CallRecord) -> CallRecord:
    """The record with every text in it made storable, also those inside its attempts, flags and stages."""
    return msgspec.structs.replace(
        record, **{name: _clean(getattr(record, name)) for name in record.__struct_fields__}
    )


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value
