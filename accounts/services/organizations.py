"""Organizations: made and changed."""

from django.db import transaction

from accounts.errors import Conflict, Invalid
from accounts.limits import Limits
from accounts.models import Organization
from accounts.permissions import Acting, Permission, require
from accounts.services.constraints import refusing
from accounts.services.text import checked_name, checked_slug

__all__ = ["change_organization", "create_organization", "limits_of", "set_organization_enabled"]


def limits_of(organization: Organization) -> Limits:
    """The limits that the organization carries itself."""
    return Limits(organization.budget_nano, organization.rpm, organization.concurrency)


@transaction.atomic
def create_organization(
    *,
    acting: Acting,
    name: str,
    title: str,
    currency: str = "CNY",
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> Organization:
    """A new organization, without members, keys or money. Takes an operator.

    Raises Conflict if the name is taken, Invalid for values that cannot be.
    """
    require(acting, Permission.OPERATE)
    limits.check()
    with refusing(
        {
            "accounts_organization_name_key": Conflict("name", f"The name {name} is taken."),
            "organization_currency_is_iso_4217": Invalid("currency", "A currency is three capital letters."),
        }
    ):
        return Organization.objects.create(
            name=checked_slug(name),
            title=checked_name(title, field="title", longest=200),
            currency=currency,
            budget_nano=limits.budget_nano,
            rpm=limits.rpm,
            concurrency=limits.concurrency,
        )


@transaction.atomic
def change_organization(
    *, acting: Acting, organization: Organization, title: str, limits: Limits
) -> Organization:
    """Give the organization this title and these limits. Raises Invalid for values that cannot be."""
    require(acting, Permission.MANAGE_ORGANIZATION, organization.pk)
    limits.check()
    organization.title = checked_name(title, field="title", longest=200)
    organization.budget_nano = limits.budget_nano
    organization.rpm = limits.rpm
    organization.concurrency = limits.concurrency
    organization.save(update_fields=["title", "budget_nano", "rpm", "concurrency"])
    return organization


@transaction.atomic
def set_organization_enabled(*, acting: Acting, organization: Organization, enabled: bool) -> Organization:
    """Let the organization's keys call, or not. Takes an operator. Idempotent."""
    require(acting, Permission.OPERATE)
    Organization.objects.filter(pk=organization.pk).exclude(enabled=enabled).update(enabled=enabled)
    organization.refresh_from_db()
    return organization
