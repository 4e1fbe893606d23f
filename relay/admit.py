"""The stations between body and upstreams: read the request, find the model and its candidates, take the hold."""

from time import perf_counter

from billing.pricing import Rates, hold_nano
from relay.admission.authenticate import allow_model
from relay.admission.holds import no_journal
from relay.call import Call
from relay.errors import ErrorKind, Refusal, UpstreamFailure
from relay.metering.estimate import Estimator
from relay.metering.journal import JournalFull, OpenLine
from relay.protocols.dialect import Request
from relay.scheduler.choose import Candidate, order_candidates
from relay.state.snapshot import ModelState
from relay.stations import Walk

__all__ = ["find_candidates", "read_request", "refuse_loop", "take_hold"]


def refuse_loop(walk: Walk) -> None:
    """Raises Refusal for a call that this relay has sent itself, by whatever way it has come back."""
    if any(walk.stations.hops.is_ours(hop) for hop in walk.call.hops):
        message = (
            "This call has come back to the relay that sent it: an upstream of the model is the relay itself."
        )
        raise Refusal(ErrorKind.LOOP, message)


def read_request(walk: Walk) -> Request:
    """The routing fields of the body. Raises Refusal."""
    call = walk.call
    call.body_bytes = len(walk.body)
    request = walk.request = walk.dialect.parse_request(walk.body)
    call.model, call.stream = request.model[:200], request.stream
    call.reasoning_effort, call.service_tier = request.reasoning_effort, request.service_tier
    if request.task_id:
        call.task_id = request.task_id
    return request


def find_candidates(walk: Walk, request: Request) -> tuple[ModelState, list[Candidate]]:
    """The model on offer, and its upstreams in the order to try them. Raises Refusal, UpstreamFailure (none)."""
    assert walk.caller is not None
    snapshot = walk.stations.loader.snapshot
    dialect = walk.dialect
    model = walk.model = allow_model(walk.caller, snapshot, request.model)
    walk.call.model = model.name
    if model.kind != dialect.kind:
        message = f"'{model.name}' is a model of the kind {model.kind}, and {dialect.endpoint} takes {dialect.kind}."
        raise Refusal(ErrorKind.BAD_FIELD, message, param="model")
    candidates = order_candidates(
        model, snapshot.upstreams, protocol=dialect.protocol, rng=walk.stations.draw
    )
    if not candidates:
        message = f"No upstream offers the model '{model.name}' at the moment."
        raise UpstreamFailure(ErrorKind.NO_UPSTREAM, message, try_next=False)
    walk.marks.routed = perf_counter()
    return model, candidates


async def take_hold(walk: Walk, request: Request, model: ModelState) -> None:
    """Have the open line written, then hold what the call may cost at most. Raises Refusal.

    In this order, at the end of this turn of the event loop, for all calls of it: a process killed between the two
    leaves a line without a hold, whose books are closed all the same. A hold without a line would stay until its lease
    has run out.
    """
    assert walk.caller is not None and model.rates is not None
    call, rates = walk.call, model.rates
    call.context_tokens = model.context_tokens * request.inputs
    input_tokens = call.input_held = Estimator.hold_input_tokens(call.body_bytes, call.context_tokens)
    ceiling = request.output_ceiling
    call.output_held = model.hold_output_tokens * request.choices if ceiling is None else ceiling
    call.hold_nano = hold_nano(rates, input_tokens, call.output_held)
    try:
        walk.stations.journal.open_soon(_open_line(call, rates, walk.stations.estimator))
    except JournalFull as exc:
        raise no_journal() from exc
    await walk.stations.holds.take(walk.caller, call.id, call.hold_nano)
    call.has_hold = True
    walk.marks.permitted = perf_counter()


def _open_line(call: Call, rates: Rates, estimator: Estimator) -> OpenLine:
    tokens = estimator.input_tokens(call.model, call.body_bytes)
    return OpenLine(
        id=call.id,
        organization_id=call.organization_id,
        key_id=call.key_id,
        member_id=call.member_id,
        endpoint=call.endpoint,
        protocol=call.protocol,
        client=call.client,
        model=call.model,
        stream=call.stream,
        task_id=call.task_id,
        price_version=rates.version,
        currency=call.currency,
        hold_nano=call.hold_nano,
        input_tokens=tokens,
        input_rate=rates.input,
    )
