"""Pure. The OpenAI text completions form, the older one without messages."""

from practice.forms.completions.render import render_body, render_events
from practice.forms.completions.request import read_prompt
from practice.forms.form import Form
from practice.forms.refusals import render_refusal, render_refusal_event

FORM = Form(
    read_prompt=read_prompt,
    render_events=render_events,
    render_body=render_body,
    render_refusal=render_refusal,
    render_refusal_event=render_refusal_event,
    id_prefix="cmpl-",
    input_field="prompt",
)
