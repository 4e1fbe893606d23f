"""Runs one case against a relay, and says what was not as expected."""

import base64
import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from typing import Any

from django.utils import timezone

from accounts import scope
from accounts.models import Key
from billing.models import UsageRecord
from relay.models import Model, Upstream
from tests.cases.harness.case_file import DEFAULT_PRICE, Case
from tests.cases.harness.expectations import (
    check_envelope,
    check_events,
    check_reading,
    check_translated,
    check_upstream_requests,
    shows_usage,
)
from tests.cases.harness.matching import MISSING, mismatches, unmatched
from tests.cases.harness.reading import Event, parse_events, read_plain, read_stream
from tests.cases.harness.scripted import Arrival, ScriptedUpstream, running_upstream
from tests.fakes.http_server import answering, in_thread
from tests.fakes.raw_client import Answer, RawClient
from tests.wire.world import Tenant, World, eventually, nano

__all__ = ["CaseRun"]

_AUTH_OF = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}
_PROTOCOL_OF = {"openai-chat": "openai"}
_NAMES_OF_LIMITS = {"rpm": "rpm", "concurrency": "concurrency"}


class CaseRun:
    """One case on one relay. Models are renamed, so that cases share a product."""

    def __init__(self, case: Case, world: World, bystander: Tenant) -> None:
        self._case = case
        self._world = world
        self._bystander = bystander
        self._suffix = f"-{time.time_ns():x}"
        names = [
            case.model.get("name", "m"),
            *case.model.get("aliases", []),
            *(m["name"] for m in case.other_models),
        ]
        self._names = {name: name + self._suffix for name in names}
        self._values: dict[str, str] = {}
        self._gone_at: float | None = None

    def run(self) -> list[str]:
        """What was not as expected."""
        case = self._case
        watch = case.disconnect_after_events is not None
        with ExitStack() as stack:
            upstreams = []
            for number, upstream in enumerate(case.upstreams):
                protocol = upstream.get("protocol", case.upstream)
                if upstream.get("unreachable"):
                    with in_thread(answering()) as closed:
                        upstreams.append(ScriptedUpstream(number, closed))
                else:
                    running = running_upstream(number, upstream, protocol, watch=watch)
                    upstreams.append(stack.enter_context(running))
            tenant = self._build(upstreams)
            answer = self._send()
            if case.expect.get("upstream_closed_ms") is not None:
                eventually(lambda: any(upstream.closed_at for upstream in upstreams))
            after = self._bystander.ask()
            self._bystander.record(after)
            arrivals = sorted((a for u in upstreams for a in u.arrivals), key=lambda arrival: arrival.at)
            problems = [*self._check(tenant, answer, arrivals, upstreams)]
            if after.status != 200:
                problems.append(f"another key's call afterwards got {after.status}")
            return problems

    # Building.

    def _build(self, upstreams: list[ScriptedUpstream]) -> Tenant:
        case, world = self._case, self._world
        price = {**case.model.get("price", DEFAULT_PRICE)}
        owner = world.organization(balance="100", currency=price["currency"])
        key, clear = world.key(owner, **self._key_fields())
        if case.key.get("state") == "wrong":
            clear = clear[:-8] + "wrongkey"
        rows = []
        for upstream, given in zip(upstreams, case.upstreams, strict=True):
            protocol = given.get("protocol", case.upstream)
            credential = f"upkey-{upstream.number}{self._suffix}"
            base = f"http://{upstream.host}" + ("/v1" if protocol.startswith("openai") else "")
            timeouts = {name: given[name] for name in ("idle_s", "first_token_s") if name in given}
            rows.append(world.upstream(base, credential=credential, protocol=protocol, timeouts=timeouts))
            self._values[f"${{UPKEY{upstream.number}}}"] = credential
            self._values[f"${{UPHOST{upstream.number}}}"] = upstream.host
        self._values["${KEY}"] = clear
        model = self._offer(case.model.get("name", "m"), rows, case.model, price)
        for other in case.other_models:
            self._offer(
                other["name"],
                rows[:1],
                {"upstream_model": f"up-{other['name']}"},
                other.get("price", DEFAULT_PRICE),
            )
        tenant = Tenant(world, owner, key, clear, model, nano("100"))
        world.wait_known(tenant)
        if case.key.get("state") == "revoked":
            with scope.site("test"):
                Key.objects.filter(pk=key.pk).update(revoked_at=timezone.now())
            eventually(lambda: tenant.send(b"", method="GET", path="/v1/models").status == 401)
        return tenant

    def _key_fields(self) -> dict[str, Any]:
        given = self._case.key
        limits = given.get("limits", {})
        fields: dict[str, Any] = {
            column: limits[name] for name, column in _NAMES_OF_LIMITS.items() if name in limits
        }
        if "budget" in limits:
            fields["budget_nano"] = nano(limits["budget"])
        allowed = given.get("models", limits.get("models"))
        if allowed is not None:
            fields["allowed_models"] = [self._names.get(name, name) for name in allowed]
        return fields

    def _offer(self, name: str, rows: list[Upstream], given: dict[str, Any], price: dict[str, str]) -> Model:
        return self._world.model(
            *rows,
            upstream_model=given.get("upstream_model", "up-m"),
            price=price,
            name=self._names[name],
            aliases=[self._names[alias] for alias in given.get("aliases", [])],
            kind=given.get("kind", "chat"),
            context_tokens=given.get("context_tokens", 200_000),
        )

    # Names and values of this run.

    def _here(self, value: Any) -> Any:
        """A part of the case with the values and names of this run put in."""
        if isinstance(value, dict):
            return {self._filled(name): self._here(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self._here(part) for part in value]
        return self._filled(self._names.get(value, value)) if isinstance(value, str) else value

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{[A-Z0-9]+\}", lambda match: self._values.get(match[0], match[0]), text)

    def _path_here(self, path: str) -> str:
        for name, renamed in self._names.items():
            path = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", renamed, path)
        return self._filled(path)

    # Sending.

    def _send(self) -> Answer:
        case = self._case
        auth = case.key.get("auth", _AUTH_OF.get(case.client, "bearer"))
        path = self._path_here(case.request["path"])
        key = self._values["${KEY}"]
        headers: dict[str, str | None] = {"content-type": "application/json"}
        if case.client == "anthropic":
            headers["anthropic-version"] = "2023-06-01"
        if auth == "bearer":
            headers["authorization"] = f"Bearer {key}"
        elif auth == "query":
            path += f"{'&' if '?' in path else '?'}key={key}"
        elif auth != "none":
            headers[auth] = key
        headers |= self._here(case.request.get("headers", {}))
        kept = {name: value for name, value in headers.items() if value is not None}
        with RawClient(self._world.relay.port) as client:
            client.request(case.request.get("method", "POST"), path, kept, self._body())
            if case.disconnect_after_events is None:
                return client.read_answer()
            answer = client.read_head()
            seen = 0
            while seen < case.disconnect_after_events:
                event = client.read_event()
                answer.pieces.append(event)
                seen += bool(parse_events(event))
            self._gone_at = time.perf_counter()
            return answer

    def _body(self) -> bytes:
        request = self._case.request
        if "raw" in request:
            return self._filled(request["raw"]).encode()
        if "b64" in request:
            return base64.b64decode(request["b64"])
        if "body" not in request:
            return b""
        return json.dumps(self._here(request["body"]), separators=(",", ":"), ensure_ascii=False).encode()

    # Checking.

    def _check(
        self, tenant: Tenant, answer: Answer, arrivals: list[Arrival], upstreams: list[ScriptedUpstream]
    ) -> Iterator[str]:
        expect = self._here(self._case.expect)
        yield from self._check_answer(expect, answer)
        if "upstream_requests" in expect:
            yield from check_upstream_requests(expect["upstream_requests"], arrivals)
        if expect.get("upstream_calls", len(arrivals)) != len(arrivals):
            yield f"{len(arrivals)} requests reached an upstream"
        if expect.get("upstream_closed_ms") is not None:
            closed = max(upstream.closed_at or 0.0 for upstream in upstreams)
            assert self._gone_at is not None
            if (closed - self._gone_at) * 1000 > expect["upstream_closed_ms"]:
                yield f"the upstream was closed {(closed - self._gone_at) * 1000:.0f} ms after the client left"
        yield from self._check_secrets(expect, answer, arrivals)
        yield from self._check_books(expect, tenant, answer)

    def _check_answer(self, expect: dict[str, Any], answer: Answer) -> Iterator[str]:
        case = self._case
        if expect["status"] is not None and (reason := unmatched(expect["status"], answer.status)):
            yield f"status: {reason}; {answer.body[:300]!r}"
        for name, matcher in expect.get("headers", {}).items():
            if reason := unmatched(matcher, answer.headers.get(name, MISSING)):
                yield f"header {name}: {reason}"
        is_stream = "event-stream" in answer.headers.get("content-type", "") or (
            "streamGenerateContent" in case.request["path"] and answer.body.lstrip().startswith(b"[")
        )
        events: list[Event] = parse_events(answer.body) if is_stream else []
        plain = None if is_stream or not answer.body else json.loads(answer.body)
        yield from (f"body {reason}" for reason in mismatches(expect.get("body", {}), plain))
        yield from check_events(expect, events)
        if answer.status >= 400:
            yield from check_envelope(case.client, plain)
            return
        documents = [event.data for event in events] if is_stream else [plain]
        if expect.get("usage") == "none" and shows_usage(documents):
            yield "the client sees a usage"
        if not is_stream and not isinstance(plain, dict):
            return
        reading = read_stream(case.client, events) if is_stream else read_plain(case.client, plain or {})
        yield from check_reading(expect, case.client, reading, is_stream=is_stream)
        is_translated = case.protocols != {_PROTOCOL_OF.get(case.client, case.client)}
        if is_stream and is_translated and reading.ends_with == "done":
            yield from check_translated(case.client, events)

    def _check_secrets(
        self, expect: dict[str, Any], answer: Answer, arrivals: list[Arrival]
    ) -> Iterator[str]:
        seen = answer.raw_head.decode("latin-1") + answer.body.decode("utf-8", "replace")
        upkeys = [value for name, value in self._values.items() if name.startswith("${UPKEY")]
        yield from (
            f"the client saw {text!r}"
            for text in [*upkeys, *expect.get("never_to_client", [])]
            if text in seen
        )
        for arrival in arrivals:
            sent = (arrival.request.raw_head + arrival.request.body).decode("utf-8", "replace")
            for text in [self._values["${KEY}"], *expect.get("never_upstream", [])]:
                if text in sent:
                    yield f"upstream {arrival.upstream} saw {text!r}"

    def _check_books(self, expect: dict[str, Any], tenant: Tenant, answer: Answer) -> Iterator[str]:
        if "record" in expect or expect.get("amount") is not None:
            call_id = answer.headers.get("x-call-id")
            is_named = call_id is not None and self._case.disconnect_after_events is None
            record = tenant.record(str(call_id)) if is_named else tenant.records(1)[0]
            shown = as_operator_sees(record)
            yield from (
                f"record {name}: {reason}"
                for name, matcher in expect.get("record", {}).items()
                if (reason := unmatched(matcher, shown.get(name, MISSING)))
            )
            if expect.get("amount") is not None and Decimal(shown["amount"]) != Decimal(expect["amount"]):
                yield f"amount {shown['amount']} instead of {expect['amount']}"
        if expect.get("no_record"):
            # The bystander's record, made later by the same process, has arrived: so has any of this key.
            if any(record.amount_nano for record in tenant.records()):
                yield "there is a record with an amount"
            if tenant.balance_nano() != tenant.opening_nano:
                yield "the balance has changed"


def as_operator_sees(record: UsageRecord) -> dict[str, Any]:
    """The fields of a call record by the names that the control API has for them."""
    fields = {field.attname: getattr(record, field.attname) for field in record._meta.concrete_fields}
    fields["id"] = str(record.id)
    fields["input_tokens"] = record.input_tokens
    fields["amount"] = f"{Decimal(record.amount_nano).scaleb(-9):f}"
    fields["cost"] = f"{Decimal(record.cost_nano).scaleb(-9):f}"
    fields["timing"] = {
        "total_ms": record.total_ms, "ttft_ms": record.ttft_ms, "ttfb_ms": record.ttfb_ms, "stages": record.stages,
    }  # fmt: skip
    return fields
