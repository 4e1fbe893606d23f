"""Pure. The OpenAI embeddings form."""

from practice.forms.embeddings.render import render_body, render_events
from practice.forms.embeddings.request import read_prompt
from practice.forms.form import Form
from practice.forms.refusals import render_refusal, render_refusal_event

FORM = Form(
    read_prompt=read_prompt,
    render_events=render_events,
    render_body=render_body,
    render_refusal=render_refusal,
    render_refusal_event=render_refusal_event,
    id_prefix="embd-",
    input_field="input",
    embeds=True,
)
