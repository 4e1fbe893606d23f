"""Money booked by people: opening credit, top-ups, refunds, adjustments. (Usage is posted by
`billing.ingest`.)

Each booking is one posting of two entries that sum to zero, in the organization's one currency. Nothing is
ever changed: a correction is a booking of its own. What may be asked for twice carries a `reference`: a
second booking with it returns the first one and books nothing.

Called inside a scope (`accounts.scope`) that sees the organization; raises one of `accounts.errors`.
"""

import uuid

from django.db import transaction

from accounts.errors import Conflict, Invalid
from accounts.limits import MOST_NANO
from accounts.models import Organization
from accounts.permissions import Acting, Permission, require
from accounts.services.constraints import refusing
from billing.models import Account, LedgerEntry, Posting, PostingKind

__all__ = ["adjust", "book_opening_credit", "refund", "set_currency", "top_up"]


def book_opening_credit(
    *, acting: Acting, organization: Organization, amount_nano: int
) -> tuple[Posting, bool]:
    """The organization's first credit, booked once: (its posting, whether it was booked now). Takes an
    operator.

    A later one of another amount changes nothing: that is a top-up or an adjustment.
    """
    require(acting, Permission.OPERATE)
    _check_positive(amount_nano)
    first = Posting.objects.filter(organization=organization, kind=PostingKind.OPENING).first()
    if first is not None:
        return first, False
    reference = uuid.uuid5(uuid.NAMESPACE_OID, f"yizhan:opening:{organization.pk}")
    return _book(
        organization,
        kind=PostingKind.OPENING,
        against=Account.EQUITY,
        amount_nano=amount_nano,
        reference=reference,
    )


def top_up(
    *, acting: Acting, organization: Organization, amount_nano: int, reference: uuid.UUID, memo: str = ""
) -> Posting:
    """Money received goes into the wallet. Takes an operator. `reference` makes it happen once."""
    require(acting, Permission.OPERATE)
    _check_positive(amount_nano)
    return _book(
        organization,
        kind=PostingKind.TOP_UP,
        against=Account.RECEIVED,
        amount_nano=amount_nano,
        reference=reference,
        memo=memo,
    )[0]


def refund(
    *, acting: Acting, organization: Organization, amount_nano: int, reference: uuid.UUID, memo: str
) -> Posting:
    """Usage that was charged is given back to the wallet. Takes an operator. `reference` makes it happen
    once.
    """
    require(acting, Permission.OPERATE)
    _check_positive(amount_nano)
    return _book(
        organization,
        kind=PostingKind.REFUND,
        against=Account.REVENUE,
        amount_nano=amount_nano,
        reference=reference,
        memo=memo,
    )[0]


def adjust(
    *,
    acting: Acting,
    organization: Organization,
    amount_nano: int,
    reference: uuid.UUID,
    memo: str,
    against: Account = Account.REVENUE,
) -> Posting:
    """A correction, up or down, of what stands `against` the wallet; the memo says why. Takes an operator."""
    require(acting, Permission.OPERATE)
    if amount_nano == 0 or abs(amount_nano) > MOST_NANO:
        raise Invalid("amount", "An adjustment is not 0.")
    if not memo.strip():
        raise Invalid("memo", "An adjustment says why it is made.")
    if against == Account.WALLET:
        raise Invalid("against", "The other side of an adjustment is not the wallet itself.")
    return _book(
        organization,
        kind=PostingKind.ADJUSTMENT,
        against=against,
        amount_nano=amount_nano,
        reference=reference,
        memo=memo,
    )[0]


def set_currency(*, acting: Acting, organization: Organization, currency: str) -> Organization:
    """Choose the billing currency. Takes an operator. Raises Conflict once anything is booked."""
    require(acting, Permission.OPERATE)
    kept = f"The wallet is kept in {organization.currency}: its currency cannot change any more."
    with refusing(
        {
            "organization_currency_is_settled": Conflict("currency", kept),
            "organization_currency_is_iso_4217": Invalid("currency", "A currency is three capital letters."),
        }
    ):
        Organization.objects.filter(pk=organization.pk).exclude(currency=currency).update(currency=currency)
    organization.currency = currency
    return organization


def _check_positive(amount_nano: int) -> None:
    if not 0 < amount_nano <= MOST_NANO:
        raise Invalid("amount", "An amount is above 0 and below 9,223,372,036.")


@transaction.atomic
def _book(
    organization: Organization,
    *,
    kind: PostingKind,
    against: Account,
    amount_nano: int,
    reference: uuid.UUID,
    memo: str = "",
) -> tuple[Posting, bool]:
    """One posting with its two entries: +amount on the wallet, -amount on `against`. Second: whether it is
    new.

    Raises Conflict if the reference was used for another booking.
    """
    posting, made = Posting.objects.get_or_create(
        reference=reference, defaults={"organization": organization, "kind": kind, "memo": memo[:200]}
    )
    if made:
        LedgerEntry.objects.bulk_create(
            [
                LedgerEntry(
                    posting=posting,
                    organization=organization,
                    account=account,
                    amount_nano=nano,
                    currency=organization.currency,
                )
                for account, nano in ((Account.WALLET, amount_nano), (against, -amount_nano))
            ]
        )
        return posting, True
    booked = LedgerEntry.objects.filter(posting=posting, account=Account.WALLET).values_list(
        "amount_nano", flat=True
    )
    if (posting.organization_id, posting.kind, list(booked)) != (organization.pk, kind, [amount_nano]):
        raise Conflict("reference", "This reference was used for another booking.")
    return posting, False
