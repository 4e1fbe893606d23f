"""Pure. From a request to the script of its answer: addresses, keys, cache, errors.

`Provider` holds what lives longer than a request: the prompt cache and the counters. It is given the time.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256

import orjson

from practice.answer import Answer
from practice.cache import PromptCache
from practice.directives import DirectiveError, Directives, parse_directives
from practice.forms import FORMS
from practice.forms.form import Exchange, Form
from practice.models import CREATED, MODELS, OWNER, Model
from practice.prompt import Prompt
from practice.refusal import Refusal
from practice.script import GARBAGE, Pace, Step, play_stream, play_whole
from practice.tokens import count_tokens
from practice.wire import BodyWriter, Framing, Head

_JSON = "application/json"
_MODELS_PATH = re.compile(r"(?:/v1)?/models(?:/(.+))?")
_PAGE = b"""<!DOCTYPE html>
<html><head><title>Practice page</title></head><body><h1>Practice page</h1>
<p>This is what a proxy in the way would show instead of an answer.</p></body></html>
"""


@dataclass(slots=True)
class Counters:
    """What GET /practice/stats tells, itself and `/practice/reset` not counted.

    `completed` counts scripts played to their end, intended cuts included; `hung_up` those whose client left.
    """

    requests: int = 0
    open: int = 0
    hung_up: int = 0
    completed: int = 0
    connections: int = 0
    connections_open: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request as the server read it; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    keep_alive: bool = True
    http_version: str = "1.1"


@dataclass(frozen=True, slots=True)
class Reply:
    """A script to play, what to do when its first token goes out, and whether the counters take note."""

    steps: Iterator[Step]
    on_first: Callable[[float], None] | None = None
    is_counted: bool = True


@dataclass(slots=True)
class Provider:
    """Answers requests. `now_s` is a steady clock for the cache, `unix_s` the time of day for `created`."""

    cache: PromptCache = field(default_factory=PromptCache)
    counters: Counters = field(default_factory=Counters)
    _answers: int = field(default=0, init=False)

    def respond(self, request: Request, now_s: float, unix_s: int) -> Reply:
        """The script for any request. Raises nothing: what goes wrong is an answer too."""
        path = request.path.split("?", 1)[0]
        form = FORMS.get(path)
        try:
            if form is not None:
                if request.method != "POST":
                    raise Refusal(405, f"{path} takes POST", code="method_not_allowed")
                return self._complete(request, form, now_s, unix_s)
            reply = _send(request, Directives(), 200, self._look(request, path))
            return replace(reply, is_counted=not path.startswith("/practice/"))
        except Refusal as refusal:
            return refuse(request, refusal, form)

    def _look(self, request: Request, path: str) -> bytes:
        """The body of everything that is no completion."""
        if path == "/practice/stats" and request.method == "GET":
            return orjson.dumps(asdict(self.counters))
        if path == "/practice/reset" and request.method == "POST":
            counters = self.counters
            counters.requests = counters.hung_up = counters.completed = counters.connections = 0
            self.cache.clear()
            return orjson.dumps(asdict(counters))
        if path == "/healthz" and request.method == "GET":
            return b'{"ok":true}'
        models = _MODELS_PATH.fullmatch(path) if request.method == "GET" else None
        if models is not None:
            _read_account(request)
            if models[1] is not None:
                return orjson.dumps(_describe(_find_model(models[1])))
            return orjson.dumps({"object": "list", "data": [_describe(model) for model in MODELS.values()]})
        raise Refusal(404, f"unknown request address: {request.method} {path[:200]}", code="unknown_url")

    def _complete(self, request: Request, form: Form, now_s: float, unix_s: int) -> Reply:
        account = _read_account(request)
        prompt = form.read_prompt(_read_object(request.body))
        try:
            directives = parse_directives(prompt.user_text)
        except DirectiveError as exc:
            raise Refusal(400, str(exc), code="invalid_directive") from exc
        model = _find_model(prompt.model)
        if model.embeds is not form.embeds:
            made = "vectors" if model.embeds else "texts"
            raise Refusal(
                400, f"The model `{model.name}` makes {made} only.", param="model", code="unsupported_model"
            )
        instead = _answer_instead(request, form, directives)
        if instead is not None:
            return instead
        answer = Answer(prompt, model, directives)
        lookup = self.cache.look_up(account, model.name, prompt.rendered, model.cache, now_s)
        longest = max((count_tokens(len(part)) for part in prompt.parts), default=lookup.prompt_tokens)
        _check_context(prompt, model, longest, form)
        self._answers += 1
        name = sha256(f"{account} {unix_s} {self._answers}".encode()).hexdigest()[:24]
        exchange = Exchange(
            prompt, model, directives, lookup, answer, f"{form.id_prefix}practice{name}", unix_s
        )
        pace = Pace.choose(
            model.prefill_s(lookup.prompt_tokens - lookup.cached_tokens), model.gap_ms, directives
        )
        steps = (
            _stream(request, form, exchange, pace) if prompt.stream else _plain(request, form, exchange, pace)
        )
        return Reply(steps, on_first=lambda first_s: self.cache.store(lookup, first_s))


def refuse(
    request: Request, refusal: Refusal, form: Form | None = None, directives: Directives | None = None
) -> Reply:
    """Pure. An error in the form of the address, or in OpenAI's where the address has none."""
    asked = directives or Directives()
    form = form or FORMS["/v1/chat/completions"]
    headers = []
    if asked.retry_after is not None:
        headers.append(("retry-after", f"{asked.retry_after:g}"))
    if asked.should_retry is not None:
        headers.append(("x-should-retry", str(asked.should_retry).lower()))
    return _send(request, asked, refusal.status, form.render_refusal(refusal), headers=tuple(headers))


def _answer_instead(request: Request, form: Form, directives: Directives) -> Reply | None:
    """The reply of a directive that wants no answer at all, or None."""
    if directives.html:
        return _send(request, directives, directives.status or 200, _PAGE, kind="text/html; charset=utf-8")
    if directives.empty_body:
        return _send(request, directives, 200, b"")
    if directives.error_body:
        return _send(request, directives, 200, form.render_refusal(_make_failure(directives)))
    if directives.status is not None and directives.error_event is None:
        return refuse(request, _make_failure(directives), form, directives)
    return None


def _stream(request: Request, form: Form, exchange: Exchange, pace: Pace) -> Iterator[Step]:
    directives = exchange.directives
    head = _make_head(request, directives, 200, "text/event-stream; charset=utf-8", exchange=exchange)
    framing = Framing(directives.framing) if directives.framing else Framing.CHUNKED
    writer = BodyWriter(head, _fit(request, framing), gzip=directives.gzip, piece_bytes=directives.pieces)
    failure = form.render_refusal_event(_make_failure(directives))
    return play_stream(form.render_events(exchange), failure, writer, directives, pace)


def _plain(request: Request, form: Form, exchange: Exchange, pace: Pace) -> Iterator[Step]:
    directives = exchange.directives
    body = form.render_body(exchange)
    if directives.error_event is not None:
        body = form.render_refusal(_make_failure(directives))
    elif directives.garbage is not None:
        body = GARBAGE
    elif directives.end_after is not None:
        body = body[: len(body) // 2]
    decode_s = pace.gap_s * max(exchange.answer.output_tokens - 1, 0)
    return _send(
        request, directives, 200, body, first_s=pace.first_s, rest_s=decode_s, exchange=exchange
    ).steps


def _send(
    request: Request,
    directives: Directives,
    status: int,
    body: bytes,
    *,
    kind: str = _JSON,
    headers: tuple[tuple[str, str], ...] = (),
    first_s: float | None = None,
    rest_s: float = 0.0,
    exchange: Exchange | None = None,
) -> Reply:
    """A whole body, with the directives that concern bodies."""
    head = _make_head(request, directives, status, kind, exchange=exchange, headers=headers)
    framing = Framing(directives.framing) if directives.framing else Framing.LENGTH
    if framing is Framing.LENGTH and (directives.gzip or directives.comments is not None):
        framing = Framing.CHUNKED
    writer = BodyWriter(
        head, _fit(request, framing), length=len(body), gzip=directives.gzip, piece_bytes=directives.pieces
    )
    return Reply(play_whole(body, writer, directives, first_s=first_s, rest_s=rest_s))


def _make_head(
    request: Request,
    directives: Directives,
    status: int,
    kind: str,
    *,
    exchange: Exchange | None = None,
    headers: tuple[tuple[str, str], ...] = (),
) -> Head:
    lines = [("content-type", directives.content_type or kind), ("server", "practice"), *headers]
    if exchange is not None:
        lines.append(("x-request-id", f"req_{exchange.answer_id.rpartition('-')[2]}"))
        lines.append(("openai-version", "2020-10-01"))
    keep = request.keep_alive and directives.close is None
    return Head(status, tuple(lines), keep)


def _fit(request: Request, framing: Framing) -> Framing:
    """HTTP/1.0 knows no chunks."""
    return Framing.CLOSE if framing is Framing.CHUNKED and request.http_version == "1.0" else framing


def _make_failure(directives: Directives) -> Refusal:
    status = directives.status or 500
    return Refusal(
        status,
        directives.message or f"Practice error with status {status}, as asked for.",
        error_type=directives.error_type,
        code=directives.error_code,
    )


def _read_account(request: Request) -> str:
    """The account of the bearer key. Raises Refusal (401) without one."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Refusal(401, "You didn't provide an API key. Any bearer key will do here.")
    return sha256(key.strip().encode()).hexdigest()


def _read_object(body: bytes) -> dict[str, object]:
    try:
        read = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise Refusal(400, "We could not parse the JSON body of your request.") from exc
    if not isinstance(read, dict):
        raise Refusal(400, "The body of your request must be a JSON object.")
    return read


def _find_model(name: str) -> Model:
    model = MODELS.get(name)
    if model is None:
        raise Refusal(
            404, f"The model `{name[:100]}` does not exist. There are: {', '.join(MODELS)}.", param="model"
        )
    return model


def _check_context(prompt: Prompt, model: Model, tokens: int, form: Form) -> None:
    wanted = tokens + (prompt.max_tokens or 0)
    if wanted > model.context_tokens:
        raise Refusal(
            400,
            f"This model's maximum context length is {model.context_tokens} tokens; you asked for {wanted} "
            f"({tokens} in the {form.input_field}, {prompt.max_tokens or 0} in the completion).",
            code="context_length_exceeded",
            param=form.input_field,
        )


def _describe(model: Model) -> dict[str, object]:
    return {"id": model.name, "object": "model", "created": CREATED, "owned_by": OWNER}
