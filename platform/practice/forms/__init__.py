"""Pure. The wire forms the provider speaks, one folder each, and the table of their addresses.

A folder has `request.py` (JSON object -> Prompt, or Refusal) and `render.py` (answer -> events or body). Its
`__init__` ties them to a `Form`. Script and server know only what `Form` names. Beside the folders stands what
forms share: `refusals.py` (OpenAI's error envelope) and `inputs.py` (a text, tokens, or a list of either).
"""

from practice.forms import chat, completions, embeddings
from practice.forms.form import Form

__all__ = ["FORMS"]

FORMS: dict[str, Form] = {
    version + path: form
    for version in ("/v1", "")
    for path, form in (
        ("/chat/completions", chat.FORM),
        ("/completions", completions.FORM),
        ("/embeddings", embeddings.FORM),
    )
}
