"""Pure. The files of the cases: read, checked for fields that the README does not name, filled with its defaults."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["DEFAULT_PRICE", "Case", "all_cases", "not_offered"]

FOLDER = Path(__file__).resolve().parents[1] / "relay"
DEFAULT_PRICE = {
    "currency": "USD",
    "input": "2.00",
    "cached_input": "0.20",
    "cache_write_5m": "2.50",
    "cache_write_30m": "2.50",
    "cache_write_1h": "4.00",
    "output": "10.00",
}
_FIELDS: dict[str, str] = {
    "": "id kind title why source confidence route model other_models key request upstreams client expect",
    "route": "client upstream profile",
    "model": "name upstream_model aliases kind context_tokens price",
    "key": "auth state models limits",
    "request": "method path headers body raw b64",
    "client": "disconnect_after_events",
    "expect": (
        "status headers body events no_events count_events text thinking tool_calls finish usage ends_with"
        " upstream_requests upstream_calls upstream_closed_ms record no_record amount never_to_client never_upstream"
    ),
    "other_models[]": "name price",
    "upstreams[]": "protocol unreachable idle_s first_token_s replies",
    "replies[]": "status headers wait_ms body text chunks sse gzip",
    "upstream_requests[]": "upstream method path query headers body raw",
}
_KINDS = {"translate", "sse", "usage", "errors", "limits", "failover", "quirks"}


@dataclass(frozen=True, slots=True)
class Case:
    """One case; sections that a file leaves out are empty."""

    id: str
    client: str
    upstream: str
    model: dict[str, Any]
    other_models: list[dict[str, Any]]
    key: dict[str, Any]
    request: dict[str, Any]
    upstreams: list[dict[str, Any]]
    disconnect_after_events: int | None
    expect: dict[str, Any]

    @property
    def protocols(self) -> set[str]:
        """What the upstreams of the case speak."""
        return {upstream.get("protocol", self.upstream) for upstream in self.upstreams}

    @property
    def prices(self) -> list[Mapping[str, str]]:
        return [
            self.model.get("price", DEFAULT_PRICE),
            *(m.get("price", DEFAULT_PRICE) for m in self.other_models),
        ]


def _check(section: str, value: Mapping[str, Any]) -> None:
    unknown = value.keys() - set(_FIELDS[section].split())
    if unknown:
        raise ValueError(
            f"{section or 'the case'} has fields that the README does not name: {sorted(unknown)}"
        )


def _read(path: Path) -> Case:
    found = json.loads(path.read_text())
    _check("", found)
    for section in ("route", "model", "key", "request", "client", "expect"):
        _check(section, found.get(section, {}))
    for item in found.get("other_models", []):
        _check("other_models[]", item)
    for upstream in found["upstreams"]:
        _check("upstreams[]", upstream)
        for reply in upstream["replies"]:
            _check("replies[]", reply)
    for item in found["expect"].get("upstream_requests", []):
        _check("upstream_requests[]", item)
    if found["id"] != path.stem or not re.fullmatch(r"[a-z0-9-]+", path.stem) or found["kind"] not in _KINDS:
        raise ValueError(f"{path.name} is not named as its id, or of no known kind")
    return Case(
        id=found["id"],
        client=found["route"]["client"],
        upstream=found["route"]["upstream"],
        model=found.get("model", {}),
        other_models=found.get("other_models", []),
        key=found.get("key", {}),
        request=found["request"],
        upstreams=found["upstreams"],
        disconnect_after_events=found.get("client", {}).get("disconnect_after_events"),
        expect=found["expect"],
    )


def all_cases() -> list[Case]:
    """Every case, by name. Raises ValueError for a file that is none."""
    return [_read(path) for path in sorted(FOLDER.glob("*.json"))]


# What the product offers today; what a case needs beyond it is named as the reason why it is not run.
_ENDPOINTS = re.compile(r"/v1/(?:chat/completions|completions|embeddings)/?|/v1/models(/.+)?")
_PRICED = {*DEFAULT_PRICE, "read_explicit", "discount"}
_LIMITS = {"budget", "rpm", "concurrency", "models", "expires_at"}


def not_offered(case: Case) -> str | None:
    """What the case needs that is not offered yet, or None."""
    if case.client != "openai-chat":
        return f"clients of {case.client} are not offered yet"
    others = sorted(case.protocols - {"openai"})
    if others:
        return f"upstreams of {others[0]} are not offered yet"
    path = case.request["path"].partition("?")[0]
    if not _ENDPOINTS.fullmatch(path):
        return f"{path} is not offered yet"
    unpriced = sorted({name for price in case.prices for name in price} - _PRICED)
    if unpriced:
        return f"a price for {unpriced[0]} is not offered yet"
    unlimited = sorted(set(case.key.get("limits", {})) - _LIMITS)
    return f"the limit {unlimited[0]} is not offered yet" if unlimited else None
