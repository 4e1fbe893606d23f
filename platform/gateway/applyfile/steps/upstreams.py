"""Brings upstreams to what is declared."""

from dataclasses import fields

from accounts.permissions import SYSTEM
from gateway.applyfile.declared import DeclaredUpstream
from gateway.applyfile.outcome import Outcome, refusals_at
from relay.models import Upstream
from relay.services.upstreams import UpstreamTerms, credential_is, save_upstream, set_upstream_enabled

__all__ = ["apply_upstreams", "prune_upstreams"]


def apply_upstreams(declared: tuple[DeclaredUpstream, ...], outcome: Outcome) -> None:
    """Make and change upstreams; a line for each says what, never the values."""
    existing = {upstream.name: upstream for upstream in Upstream.objects.all()}
    for wanted in declared:
        upstream = existing.get(wanted.name)
        changed = None if upstream is None else _changed(upstream, wanted.terms)
        if changed == []:
            continue
        with refusals_at(wanted.place):
            save_upstream(acting=SYSTEM, name=wanted.name, terms=wanted.terms, upstream=upstream)
            what = f": {', '.join(changed)}" if changed else ""
            outcome.lines.append(f"{'~' if changed else '+'} upstream {wanted.name}{what}")


def prune_upstreams(declared: tuple[DeclaredUpstream, ...], outcome: Outcome) -> None:
    """Switch off upstreams that the file does not name."""
    names = [upstream.name for upstream in declared]
    for upstream in Upstream.objects.filter(enabled=True).exclude(name__in=names).order_by("name"):
        set_upstream_enabled(acting=SYSTEM, upstream=upstream, enabled=False)
        outcome.lines.append(f"- upstream {upstream.name} (switched off)")


def _changed(upstream: Upstream, terms: UpstreamTerms) -> list[str]:
    """Names of the fields that differ."""
    names = [field.name for field in fields(UpstreamTerms) if field.name != "credential"]
    changed = [name for name in names if getattr(upstream, name) != getattr(terms, name)]
    return changed if credential_is(upstream, terms.credential) else [*changed, "credential"]
