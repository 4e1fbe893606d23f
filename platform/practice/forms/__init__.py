"""Pure. The wire forms the provider speaks, one folder each, and the table of their addresses.

A folder has `request.py` (JSON object -> Prompt, or Refusal) and `render.py` (answer -> events or body,
refusal -> body or event). Its `__init__` ties them to a `Form`. Script and server know only what `Form`
names.
"""

from practice.forms import chat
from practice.forms.form import Form

__all__ = ["FORMS"]

FORMS: dict[str, Form] = {
    "/v1/chat/completions": chat.FORM,
    "/chat/completions": chat.FORM,
}
