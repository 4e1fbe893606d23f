"""Pure. Reads an embeddings request.

Source: OpenAI embedding request types (openai-python 3.3.1, August 2026).
"""

from practice.forms.inputs import join_parts, last_text, read_inputs, to_bytes
from practice.models import MODELS
from practice.prompt import Prompt
from practice.refusal import Refusal


def read_prompt(body: dict[str, object]) -> Prompt:
    """Pure. The request in neutral words. Raises Refusal (400) naming the field that is missing or wrong."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise Refusal(
            400, "you must provide a model parameter", param="model", code="missing_required_parameter"
        )
    inputs = read_inputs(body, "input")
    form = body.get("encoding_format")
    if form not in (None, "float", "base64"):
        raise Refusal(
            400,
            "encoding_format must be float or base64",
            param="encoding_format",
            code="invalid_value",
        )
    parts = tuple(to_bytes(value) for value in inputs)
    if not all(parts):
        raise Refusal(400, "input must not hold an empty text", param="input", code="invalid_value")
    return Prompt(
        model=model,
        rendered=join_parts(parts),
        user_text=last_text(inputs),
        parts=parts,
        dimensions=_read_dimensions(body, model),
        base64=form == "base64",
    )


def _read_dimensions(body: dict[str, object], model: str) -> int | None:
    value = body.get("dimensions")
    if value is None:
        return None
    most = MODELS[model].dimensions if model in MODELS else 0
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= max(most, 1):
        raise Refusal(
            400,
            f"dimensions must be a whole number from 1 to {most}",
            param="dimensions",
            code="invalid_value",
        )
    return value
