"""Brings organizations, their money and their members to what is declared."""

from accounts.errors import ServiceError
from accounts.models import Member, Organization
from accounts.permissions import SYSTEM
from accounts.services.members import add_member, change_role, switch_off_member
from accounts.services.organizations import (
    change_organization,
    create_organization,
    limits_of,
    set_organization_enabled,
)
from billing.ledger import book_opening_credit, set_currency
from billing.models import Account, LedgerEntry, Posting
from gateway.applyfile.declared import DeclaredMember, DeclaredOrganization
from gateway.applyfile.outcome import Outcome, refusals_at
from gateway.applyfile.steps.keys import apply_keys, prune_keys

__all__ = ["apply_organizations", "prune_organizations"]

_CURRENCY = "CNY"


def apply_organizations(declared: tuple[DeclaredOrganization, ...], outcome: Outcome, *, prune: bool) -> None:
    """Make and change organizations. With `prune`, switch off members and revoke keys that the file does not
    name.
    """
    existing = {organization.name: organization for organization in Organization.objects.all()}
    for wanted in declared:
        with refusals_at(wanted.place):
            organization = _apply_organization(existing.get(wanted.name), wanted, outcome)
            _apply_balance(organization, wanted, outcome)
            for member in wanted.members:
                _apply_member(organization, member, outcome)
            if prune:
                _prune_members(organization, wanted, outcome)
                prune_keys(organization, wanted.keys, outcome)
            apply_keys(organization, wanted.keys, outcome)


def prune_organizations(declared: tuple[DeclaredOrganization, ...], outcome: Outcome) -> None:
    """Switch off organizations that the file does not name, and revoke their keys."""
    names = [organization.name for organization in declared]
    for organization in Organization.objects.exclude(name__in=names).order_by("name"):
        prune_keys(organization, (), outcome)
        if organization.enabled:
            set_organization_enabled(acting=SYSTEM, organization=organization, enabled=False)
            outcome.lines.append(f"- organization {organization.name} (switched off)")


def _apply_organization(
    organization: Organization | None, wanted: DeclaredOrganization, outcome: Outcome
) -> Organization:
    if organization is None:
        outcome.lines.append(f"+ organization {wanted.name}")
        return create_organization(
            acting=SYSTEM,
            name=wanted.name,
            title=wanted.title,
            currency=wanted.currency or _CURRENCY,
            limits=wanted.limits,
        )
    changed = []
    if organization.title != wanted.title:
        changed.append("title")
    if limits_of(organization) != wanted.limits:
        changed.append("limits")
    if changed:
        change_organization(
            acting=SYSTEM, organization=organization, title=wanted.title, limits=wanted.limits
        )
    if not organization.enabled:
        changed.append("switched on")
        set_organization_enabled(acting=SYSTEM, organization=organization, enabled=True)
    if wanted.currency not in (None, organization.currency):
        changed.append("currency")
        try:
            set_currency(acting=SYSTEM, organization=organization, currency=str(wanted.currency))
        except ServiceError as exc:
            wanted.place.at("balance").refuse(str(exc))
    if changed:
        outcome.lines.append(f"~ organization {wanted.name}: {', '.join(changed)}")
    return organization


def _apply_balance(organization: Organization, wanted: DeclaredOrganization, outcome: Outcome) -> None:
    """Book the opening credit, once ever. Another amount later is no correction, and a note says so."""
    if not wanted.opening_nano or wanted.currency != organization.currency:
        return
    posting, is_new = book_opening_credit(
        acting=SYSTEM, organization=organization, amount_nano=wanted.opening_nano
    )
    if is_new:
        amount = _units(wanted.opening_nano)
        outcome.lines.append(f"+ opening credit of {wanted.name}: {amount} {organization.currency}")
        return
    booked = _booked(posting)
    if booked != wanted.opening_nano:
        outcome.note(
            wanted.place.at("balance"),
            f"the opening credit was booked as {_units(booked)} and stays so; what is more is a top-up",
        )


def _booked(posting: Posting) -> int:
    return int(LedgerEntry.objects.get(posting=posting, account=Account.WALLET).amount_nano)


def _units(nano: int) -> str:
    whole, rest = divmod(nano, 10**9)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")


def _apply_member(organization: Organization, wanted: DeclaredMember, outcome: Outcome) -> None:
    member = Member.objects.filter(organization=organization, user__email=wanted.email).first()
    with refusals_at(wanted.place):
        if member is None:
            add_member(
                acting=SYSTEM,
                organization=organization,
                email=wanted.email,
                role=wanted.role,
                password=wanted.password,
            )
            outcome.lines.append(f"+ member {wanted.email} of {organization.name} ({wanted.role})")
        elif member.role != wanted.role:
            change_role(acting=SYSTEM, member=member, role=wanted.role)
            outcome.lines.append(f"~ member {wanted.email} of {organization.name}: {wanted.role}")


def _prune_members(organization: Organization, wanted: DeclaredOrganization, outcome: Outcome) -> None:
    emails = [member.email for member in wanted.members]
    gone = Member.objects.filter(organization=organization).exclude(user__email__in=emails)
    for member in gone.select_related("user").order_by("user__email"):
        switch_off_member(acting=SYSTEM, member=member)
        outcome.lines.append(f"- member {member.user.email} of {organization.name} (switched off)")
