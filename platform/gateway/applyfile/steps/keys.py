"""Brings an organization's keys to what is declared.

A fixed key is known by its value, a generated one by its name. A key that a person revoked stays dead,
whatever a file says at the next start. One that pruning revoked comes back when the file names it again: a
fixed one to life, a generated one as a new key, for nobody may have kept the old one.
"""

from dataclasses import replace

from accounts.models import Key, Member, Organization
from accounts.permissions import SYSTEM
from accounts.queries import find_key, live_keys
from accounts.services.keys import (
    KeyTerms,
    change_key,
    create_key,
    rename_key,
    restore_key,
    revoke_key,
    terms_of,
)
from gateway.applyfile.declared import DeclaredKey
from gateway.applyfile.outcome import Outcome, refusals_at
from relay.models import Model

__all__ = ["PRUNED", "apply_keys", "prune_keys"]

PRUNED = "no longer named by the applied file"
_REPLACED = "another value in the applied file"


def apply_keys(organization: Organization, declared: tuple[DeclaredKey, ...], outcome: Outcome) -> None:
    """Make, change, rename and rotate the organization's keys."""
    known = {name: model.name for model in Model.objects.all() for name in (model.name, *model.aliases)}
    # Names are unique among live keys: those that shall be called otherwise go first.
    for wanted in sorted(declared, key=lambda key: key.value is None):
        with refusals_at(wanted.place):
            terms = _terms(organization, wanted)
            if terms is None:
                continue
            _note_unknown_models(wanted, known, outcome)
            if wanted.value is None:
                _apply_generated(organization, wanted, terms, outcome)
            else:
                _apply_fixed(organization, wanted, terms, outcome)


def prune_keys(organization: Organization, declared: tuple[DeclaredKey, ...], outcome: Outcome) -> None:
    """Revoke the organization's live keys that are not declared, by value or by name."""
    kept = {found.pk for key in declared if key.value is not None and (found := find_key(key.value))}
    names = {key.name for key in declared}
    for key in live_keys(organization):
        if key.pk not in kept and key.name not in names:
            revoke_key(acting=SYSTEM, key=key, reason=PRUNED)
            outcome.lines.append(f"- key {key.name} of {organization.name} (revoked)")


def _apply_generated(
    organization: Organization, wanted: DeclaredKey, terms: KeyTerms, outcome: Outcome
) -> None:
    key = live_keys(organization).filter(name=wanted.name).first()
    if key is None:
        last = Key.objects.filter(organization=organization, name=wanted.name).order_by("-revoked_at").first()
        if last is not None and not _is_revoked_by_a_file(last):
            message = f"the key {wanted.name} was revoked and stays so; give another name to have a new one"
            outcome.note(wanted.place, message)
            return
        made = create_key(acting=SYSTEM, organization=organization, name=wanted.name, terms=terms)
        outcome.new_keys.append((f"{wanted.name} of {organization.name}", made.clear))
        outcome.lines.append(f"+ key {wanted.name} of {organization.name}")
        return
    _change(key, terms, [], outcome)


def _apply_fixed(organization: Organization, wanted: DeclaredKey, terms: KeyTerms, outcome: Outcome) -> None:
    key = find_key(str(wanted.value))
    if key is not None and key.organization_id != organization.pk:
        wanted.place.at("value").refuse("this value is the one of another organization's key, or was")
        return
    if key is not None and key.revoked_at is not None and not _is_revoked_by_a_file(key):
        outcome.note(wanted.place, f"the key {wanted.name} was revoked and stays so; give it a new value")
        return
    namesake = live_keys(organization).filter(name=wanted.name).first()
    if namesake is not None and (key is None or namesake.pk != key.pk):
        revoke_key(acting=SYSTEM, key=namesake, reason=_REPLACED)
        outcome.lines.append(
            f"- key {wanted.name} of {organization.name} (revoked: it has another value now)"
        )
    if key is None:
        create_key(
            acting=SYSTEM, organization=organization, name=wanted.name, terms=terms, value=wanted.value
        )
        outcome.lines.append(f"+ key {wanted.name} of {organization.name}")
        return
    changed = []
    if key.name != wanted.name:
        rename_key(acting=SYSTEM, key=key, name=wanted.name)
        changed.append("name")
    if key.revoked_at is not None:
        restore_key(acting=SYSTEM, key=key)
        changed.append("restored")
    _change(key, terms, changed, outcome)


def _is_revoked_by_a_file(key: Key) -> bool:
    return key.revoked_reason in (PRUNED, _REPLACED)


def _change(key: Key, terms: KeyTerms, changed: list[str], outcome: Outcome) -> None:
    now = terms_of(key)
    # The file does not say when a key ends: what a person set stays.
    terms = replace(terms, expires_at=now.expires_at)
    changed += [
        name for name in ("member", "allowed_models", "limits") if getattr(now, name) != getattr(terms, name)
    ]
    if set(now.scopes) != set(terms.scopes):
        changed.append("scopes")
    if changed:
        change_key(acting=SYSTEM, key=key, terms=terms)
        outcome.lines.append(f"~ key {key.name} of {key.organization.name}: {', '.join(changed)}")


def _terms(organization: Organization, wanted: DeclaredKey) -> KeyTerms | None:
    member = None
    if wanted.member is not None:
        member = Member.objects.filter(organization=organization, user__email=wanted.member).first()
        if member is None:
            wanted.place.at("member").refuse(f"{wanted.member} is not a member of {organization.name}")
            return None
    return KeyTerms(member, wanted.models, wanted.scopes, wanted.limits)


def _note_unknown_models(wanted: DeclaredKey, known: dict[str, str], outcome: Outcome) -> None:
    for name in wanted.models or ():
        if name not in known:
            outcome.note(wanted.place.at("models"), f"there is no model {name!r}")
        elif known[name] != name:
            message = f"{name!r} is an alias: name the model itself, {known[name]!r}"
            outcome.note(wanted.place.at("models"), message)
