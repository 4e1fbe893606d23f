"""`organizations:` with their opening credit, limits, members and keys."""

import re

from accounts.errors import Invalid
from accounts.keys import is_legal_value
from accounts.models import Role, Scope
from accounts.services.text import checked_name, checked_slug
from gateway.applyfile import later
from gateway.applyfile.declared import DeclaredKey, DeclaredMember, DeclaredOrganization
from gateway.applyfile.places import Place, Table, open_table
from gateway.applyfile.secrets import SecretMissing, SecretSource
from gateway.applyfile.sections.limits import read_limits, read_nano

__all__ = ["read_organizations"]

_FIELDS = ("name", "title", "balance", "limits", "members", "keys")
_MEMBER_FIELDS = ("email", "role", "password")
_KEY_FIELDS = ("name", "value", "member", "models", "scopes", "limits")
# NIST SP 800-63B, 5.1.1.2: what a person may choose at least. The console asks for more.
_PASSWORD_CHARACTERS = 8
_CURRENCY = re.compile(r"[A-Z]{3}")
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,180}")


def read_organizations(place: Place, secrets: SecretSource) -> tuple[DeclaredOrganization, ...]:
    """The organizations declared. The same name, or the same fixed key, twice is refused."""
    organizations: list[DeclaredOrganization] = []
    for item in place.items():
        table = open_table(item, _FIELDS, later.FIELDS["organization"])
        found = table and _read_organization(table, secrets)
        if not found:
            continue
        if found.name in (other.name for other in organizations):
            item.at("name").refuse(f"there are two organizations named {found.name!r}")
        organizations.append(found)
    values: set[str] = set()
    for key in (key for organization in organizations for key in organization.keys):
        if key.value is not None and key.value in values:
            key.place.at("value").refuse("two keys cannot have the same value")
        values.add(key.value or "")
    return tuple(organizations)


def _read_organization(table: Table, secrets: SecretSource) -> DeclaredOrganization | None:
    name = _read_text(table, "name", required=True)
    title = _read_text(table, "title") or name
    currency, opening_nano = _read_balance(table.get("balance"))
    limits = read_limits(table.get("limits"), "organization")
    members = _read_members(table.get("members"), secrets)
    keys = _read_keys(table.get("keys"))
    if not name or not title:
        return None
    try:
        checked_slug(name)
        checked_name(title, field="title", longest=200)
    except Invalid as exc:
        table.place.at(exc.field).refuse(str(exc))
    return DeclaredOrganization(name, title, currency, opening_nano, limits, members, keys, table.place)


def _read_balance(place: Place | None) -> tuple[str | None, int]:
    entries = place.entries() if place else []
    if len(entries) > 1 and place:
        place.refuse("must have one entry: an organization has one billing currency")
    for currency, amount in entries[:1]:
        if not _CURRENCY.fullmatch(currency):
            amount.refuse("a currency is three capital letters such as CNY")
        return currency, read_nano(amount) or 0
    return None, 0


def _read_members(place: Place | None, secrets: SecretSource) -> tuple[DeclaredMember, ...]:
    members: list[DeclaredMember] = []
    for item in place.items() if place else []:
        table = open_table(item, _MEMBER_FIELDS, later.FIELDS["member"])
        email_place, role_place = (table.need("email"), table.need("role")) if table else (None, None)
        email = email_place and email_place.text("an e-mail address")
        role = role_place and role_place.choice(Role.values)
        if not table or not email_place or not email or not role:
            continue
        if not _EMAIL.fullmatch(email):
            email_place.refuse("must be an e-mail address")
        if email.lower() in (other.email for other in members):
            email_place.refuse(f"there are two members {email.lower()!r}")
        members.append(DeclaredMember(email.lower(), role, _read_password(table, secrets), item))
    return tuple(members)


def _read_password(table: Table, secrets: SecretSource) -> str | None:
    place = table.get("password")
    text = place.secret() if place else None
    if not place or text is None:
        return None
    try:
        password = secrets.resolve(text)
    except SecretMissing as exc:
        place.refuse(str(exc))
        return None
    if len(password) < _PASSWORD_CHARACTERS:
        place.refuse(f"must have at least {_PASSWORD_CHARACTERS} characters")
        return None
    return password


def _read_keys(place: Place | None) -> tuple[DeclaredKey, ...]:
    keys: list[DeclaredKey] = []
    for item in place.items() if place else []:
        table = open_table(item, _KEY_FIELDS, later.FIELDS["key"])
        key = table and _read_key(table)
        if not key:
            continue
        if key.name in (other.name for other in keys):
            item.at("name").refuse(f"there are two keys named {key.name!r}")
        keys.append(key)
    return tuple(keys)


def _read_key(table: Table) -> DeclaredKey | None:
    name, member = _read_text(table, "name", required=True), _read_text(table, "member")
    value_place, models_place, scopes_place = table.get("value"), table.get("models"), table.get("scopes")
    value = value_place.secret() if value_place else None
    if value_place and value is not None and not is_legal_value(value):
        value_place.refuse("must be 20 to 200 visible ASCII characters")
    models = scopes = None
    if models_place:
        models = tuple(model for item in models_place.items("a list of models") if (model := item.text()))
    if scopes_place:
        scopes = tuple(
            scope for item in scopes_place.items("a list of scopes") if (scope := item.choice(Scope.values))
        )
        if not scopes:
            scopes_place.refuse(f"must name one or more of {', '.join(Scope.values)}")
    limits = read_limits(table.get("limits"), "key")
    if not name:
        return None
    try:
        name = checked_name(name)
    except Invalid as exc:
        table.place.at("name").refuse(str(exc))
    return DeclaredKey(
        name,
        value,
        member.lower() if member else None,
        models,
        scopes or (Scope.CALL.value,),
        limits,
        table.place,
    )


def _read_text(table: Table, name: str, *, required: bool = False) -> str | None:
    place = table.need(name) if required else table.get(name)
    return place.text() if place else None
