"""Keys: handed out, changed, revoked. The clear text leaves `create_key` once and is kept nowhere."""

from dataclasses import dataclass, field
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from accounts.errors import Conflict, Invalid, NotAllowed
from accounts.keys import display_prefix, fingerprint, is_legal_value, make_key
from accounts.limits import Limits
from accounts.models import Key, Member, Organization, Scope
from accounts.permissions import Acting, Permission, require
from accounts.services.constraints import refusing
from accounts.services.text import checked_name

__all__ = [
    "KeyTerms",
    "NewKey",
    "change_key",
    "create_key",
    "may_manage",
    "rename_key",
    "restore_key",
    "revoke_key",
    "terms_of",
]


@dataclass(frozen=True, slots=True)
class KeyTerms:
    """What a key may do. `allowed_models` None is all of them; times are aware."""

    member: Member | None = None
    allowed_models: tuple[str, ...] | None = None
    scopes: tuple[str, ...] = (Scope.CALL,)
    limits: Limits = field(default_factory=Limits)
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made. `clear` is its text, to be shown once."""

    key: Key
    clear: str = field(repr=False)


def terms_of(key: Key) -> KeyTerms:
    """What the key may do now; `dataclasses.replace` makes changed terms of it."""
    return KeyTerms(
        member=key.member,
        allowed_models=None if key.allowed_models is None else tuple(key.allowed_models),
        scopes=tuple(key.scopes),
        limits=Limits(key.budget_nano, key.rpm, key.concurrency),
        expires_at=key.expires_at,
    )


def may_manage(acting: Acting, key: Key) -> bool:
    """Whether they may change, rename and revoke this key. One with the scope of operators takes an operator."""
    return acting.is_operator or (
        Scope.OPERATE not in key.scopes and acting.may(Permission.MANAGE_KEYS, key.organization_id)
    )


@transaction.atomic
def create_key(
    *,
    acting: Acting,
    organization: Organization,
    name: str,
    terms: KeyTerms,
    value: str | None = None,
) -> NewKey:
    """A new key, random or (for automation) with this `value`.

    Raises NotAllowed, Invalid for values that cannot be, Conflict if a live key has the name or any key the
    value.
    """
    require(acting, Permission.MANAGE_KEYS, organization.pk)
    _check(acting, terms, organization.pk)
    if value is not None and not is_legal_value(value):
        raise Invalid("value", "A fixed key has 20 to 200 visible ASCII characters.")
    clear = value or make_key()
    with refusing(_name_or_value_taken(name)):
        key = Key.objects.create(
            organization=organization,
            name=checked_name(name),
            prefix=display_prefix(clear),
            fingerprint=fingerprint(clear.encode(), settings.KEY_PEPPERS[0]),
            **_columns(terms),
        )
    return NewKey(key, clear)


@transaction.atomic
def change_key(*, acting: Acting, key: Key, terms: KeyTerms) -> Key:
    """Put the key under these terms. Raises NotAllowed, or Invalid for values that cannot be."""
    _require_management(acting, key)
    _check(acting, terms, key.organization_id)
    columns = _columns(terms)
    for name, value in columns.items():
        setattr(key, name, value)
    key.save(update_fields=list(columns))
    return key


@transaction.atomic
def rename_key(*, acting: Acting, key: Key, name: str) -> Key:
    """Give the key another name. Raises NotAllowed, Invalid, or Conflict if a live key has it."""
    _require_management(acting, key)
    key.name = checked_name(name)
    with refusing(_name_or_value_taken(name)):
        key.save(update_fields=["name"])
    return key


@transaction.atomic
def revoke_key(*, acting: Acting, key: Key, reason: str = "") -> Key:
    """Make the key unusable now, for good. Idempotent: the first time and reason stay. Raises NotAllowed."""
    _require_management(acting, key)
    Key.objects.filter(pk=key.pk, revoked_at=None).update(
        revoked_at=timezone.now(), revoked_reason=reason[:100]
    )
    key.refresh_from_db()
    return key


@transaction.atomic
def restore_key(*, acting: Acting, key: Key) -> Key:
    """Make a revoked key usable again. Takes an operator, for a key that leaked must stay dead.

    Raises Conflict if a live key has its name by now.
    """
    require(acting, Permission.OPERATE)
    with refusing(_name_or_value_taken(key.name)):
        Key.objects.filter(pk=key.pk).update(revoked_at=None, revoked_reason="")
    key.refresh_from_db()
    return key


def _require_management(acting: Acting, key: Key) -> None:
    require(acting, Permission.MANAGE_KEYS, key.organization_id)
    if not may_manage(acting, key):
        raise NotAllowed("Only operators of the site may change or revoke a key with the scope operate.")


def _name_or_value_taken(name: str) -> dict[str, Invalid]:
    return {
        "key_name_once_while_live": Conflict("name", f"There is a key named {name} already."),
        "accounts_key_fingerprint_key": Conflict("value", "This value is the one of another key, or was."),
    }


def _check(acting: Acting, terms: KeyTerms, organization_id: int) -> None:
    terms.limits.check()
    unknown = set(terms.scopes) - set(Scope.values)
    if unknown or not terms.scopes:
        raise Invalid("scopes", f"Scopes are one or more of {', '.join(Scope.values)}.")
    if Scope.OPERATE in terms.scopes:
        require(acting, Permission.OPERATE)
    if terms.member is not None and terms.member.organization_id != organization_id:
        raise Invalid("member", "The member is not one of this organization.")
    if terms.allowed_models is not None and any(not 0 < len(name) <= 200 for name in terms.allowed_models):
        raise Invalid("models", "A model's name has between 1 and 200 characters.")


def _columns(terms: KeyTerms) -> dict[str, object]:
    return {
        "member": terms.member,
        "allowed_models": None if terms.allowed_models is None else list(terms.allowed_models),
        "scopes": list(terms.scopes),
        "budget_nano": terms.limits.budget_nano,
        "rpm": terms.limits.rpm,
        "concurrency": terms.limits.concurrency,
        "expires_at": terms.expires_at,
    }
