"""Pure. OpenAI's error envelope, which its forms share."""

import orjson

from practice.forms.form import Event, EventKind
from practice.refusal import Refusal


def render_refusal(refusal: Refusal) -> bytes:
    """Pure. The error as a body."""
    return orjson.dumps(
        {
            "error": {
                "message": refusal.message,
                "type": refusal.error_type,
                "param": refusal.param,
                "code": refusal.code,
            }
        }
    )


def render_refusal_event(refusal: Refusal) -> Event:
    """Pure. The error as an event inside a stream."""
    return Event(EventKind.FINISH, render_refusal(refusal))
