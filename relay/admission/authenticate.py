"""The station that says whose call this is, from headers and memory alone.

A key may stand in any of five places; two that differ are refused, since one of them may be somebody else's. Every
refusal of an unknown, revoked or expired key is a 401 without a hint which keys exist.
"""

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from accounts.keys import fingerprints
from billing.pricing import is_free
from relay.errors import ErrorKind, Refusal
from relay.state.loader import DatabaseAway, SnapshotLoader
from relay.state.snapshot import KeyState, ModelState, OrganizationState, Snapshot

__all__ = ["Caller", "allow_model", "authenticate", "key_in", "may_use"]

_QUERY_KEY = re.compile(rb"(?:^|&)key=([^&]*)")
_OTHERS = frozenset({b"x-api-key", b"x-goog-api-key", b"api-key"})
_HEADERS = _OTHERS | {b"authorization"}
MAX_KEY_BYTES = 512
# A process that has just started takes connections at once, and knows everything a moment later.
START_S = 3.0


class Caller(Struct, frozen=True):
    key: KeyState
    organization: OrganizationState


def key_in(headers: Sequence[tuple[bytes, bytes]], query: bytes) -> bytes:
    """Pure. The one key of a request. Raises Refusal (no_key, keys_differ, wrong_key)."""
    given = dict(headers)
    if not query and len(given) == len(headers) and _OTHERS.isdisjoint(given):
        # The usual way: one header, nothing beside it.
        shown = given.get(b"authorization", b"")
        if shown[:7] in (b"Bearer ", b"bearer ") and 7 < len(shown) <= MAX_KEY_BYTES and shown[7] > 0x20:
            return shown[7:].rstrip()
    found: bytes | None = None
    for name, value in headers:
        if name not in _HEADERS:
            continue
        if name == b"authorization":
            scheme, _, shown = value.partition(b" ")
            if scheme.lower() != b"bearer":
                continue
        else:
            shown = value
        shown = shown.strip()
        if not shown:
            continue
        if found is not None and found != shown:
            raise Refusal(ErrorKind.KEYS_DIFFER, "The request carries two different keys. Send one.")
        found = shown
    if b"key=" in query and (match := _QUERY_KEY.search(query)) is not None:
        value = unquote_to_bytes(match.group(1))
        if value and found is not None and found != value:
            raise Refusal(ErrorKind.KEYS_DIFFER, "The request carries two different keys. Send one.")
        found = found or value or None
    if found is None:
        raise Refusal(ErrorKind.NO_KEY, "No key was sent. Send it as 'Authorization: Bearer <key>'.")
    if len(found) > MAX_KEY_BYTES:
        raise Refusal(ErrorKind.WRONG_KEY, "This key is not valid.")
    return found


async def authenticate(value: bytes, loader: SnapshotLoader, peppers: Sequence[bytes], now: float) -> Caller:
    """The caller behind a key, from memory; a key that memory lacks costs one look in the database.

    Raises Refusal: wrong_key, key_revoked, key_expired, organization_off, key_scope, not_ready (database away).
    """
    if not loader.loaded.is_set():
        await loader.until_loaded(START_S)
    prints = fingerprints(value, peppers)
    snapshot = loader.snapshot
    key = None
    for fingerprint in prints:
        key = snapshot.key(fingerprint)
        if key is not None:
            break
    if key is None:
        try:
            key = await loader.find_key(prints)
        except DatabaseAway as exc:
            raise Refusal(
                ErrorKind.NOT_READY, "Keys cannot be checked at the moment. Try again soon.", retry_after_s=2
            ) from exc
    if key is None:
        raise Refusal(ErrorKind.WRONG_KEY, "This key is not valid.")
    if key.revoked:
        raise Refusal(ErrorKind.KEY_REVOKED, "This key is not valid: it was revoked.")
    if key.expires_at is not None and key.expires_at <= now:
        raise Refusal(ErrorKind.KEY_EXPIRED, "This key is not valid: it has expired.")
    organization = snapshot.organizations.get(key.organization_id)
    if organization is None:
        raise Refusal(
            ErrorKind.NOT_READY, "Keys cannot be checked at the moment. Try again soon.", retry_after_s=1
        )
    if not organization.enabled:
        raise Refusal(ErrorKind.ORGANIZATION_OFF, "The organization of this key is switched off.")
    if not key.may_call:
        raise Refusal(
            ErrorKind.KEY_SCOPE, "This key may manage, but not call models (its scope lacks 'call')."
        )
    return Caller(key, organization)


def allow_model(caller: Caller, snapshot: Snapshot, name: str) -> ModelState:
    """The model on offer under `name`, if this key may use it. Raises Refusal: unknown_model, model_not_allowed,
    model_not_priced.
    """
    model = snapshot.model(name)
    if model is None:
        shown = name if len(name) <= 100 else name[:100] + "…"
        raise Refusal(ErrorKind.UNKNOWN_MODEL, f"The model '{shown}' does not exist here.", param="model")
    if not may_use(caller.key, model):
        raise Refusal(
            ErrorKind.MODEL_NOT_ALLOWED, f"This key may not use the model '{model.name}'.", param="model"
        )
    if model.rates is None:
        raise Refusal(
            ErrorKind.MODEL_NOT_PRICED,
            f"The model '{model.name}' has no price yet, so it cannot be used.",
            param="model",
        )
    if model.rates.currency != caller.organization.currency and not is_free(model.rates):
        raise Refusal(
            ErrorKind.MODEL_NOT_PRICED,
            f"The model '{model.name}' is priced in {model.rates.currency}, and there is no rate to"
            f" {caller.organization.currency}.",
            param="model",
        )
    return model


def may_use(key: KeyState, model: ModelState) -> bool:
    """Pure. Whether the key's list of models, if it has one, names this model."""
    return key.models is None or model.name in key.models
