"""Top-ups as people and programs ask for them: an amount in words, its currency, and a key that makes it happen once.

The command, the control API and the console's form all book through `book_top_up`, inside a scope that sees the
organization.
"""

import re
import uuid
from dataclasses import dataclass

from django.db import connection, transaction

from accounts.errors import Conflict, Invalid
from accounts.limits import MOST_NANO
from accounts.models import Organization
from accounts.permissions import Acting, Permission, require
from billing.balances import balances, credits_of
from billing.ledger import top_up
from billing.models import Posting

__all__ = ["AMOUNT_DIGITS", "MOST_AT_ONCE", "NOTE_LENGTH", "TopUp", "book_top_up", "read_amount"]

AMOUNT_DIGITS = 9
# Chosen: more at once is taken for a slip of the finger, in any currency.
MOST_AT_ONCE = 1_000_000_000
NOTE_LENGTH = 200
_KEY_LENGTH = 200
_PLAIN = re.compile(r"[0-9]{1,40}(?:\.([0-9]{1,40}))?")


@dataclass(frozen=True, slots=True)
class TopUp:
    """One booked top-up. `is_new` is False where its key had been used for this very booking before.

    `balance_nano` is the wallet's sum now.
    """

    posting: Posting
    amount_nano: int
    currency: str
    balance_nano: int
    is_new: bool


def read_amount(text: str) -> int:
    """Nano-units of the amount in a decimal string. Raises Invalid, with a sentence that says what is wrong with it.

    >>> read_amount("12.5")
    12500000000
    """
    text = text.strip()
    if text.startswith("-"):
        raise Invalid(
            "amount", "A top-up is above 0. What was booked by mistake is corrected by an adjustment."
        )
    found = _PLAIN.fullmatch(text)
    if found is None:
        raise Invalid("amount", 'An amount is a plain decimal number such as "100.00".')
    digits = (found[1] or "").rstrip("0")
    if len(digits) > AMOUNT_DIGITS:
        raise Invalid("amount", f"An amount has at most {AMOUNT_DIGITS} digits after the point.")
    nano = int(text.partition(".")[0]) * 10**AMOUNT_DIGITS + int(digits.ljust(AMOUNT_DIGITS, "0"))
    if nano == 0:
        raise Invalid("amount", "A top-up is above 0.")
    if nano > MOST_AT_ONCE * 10**AMOUNT_DIGITS:
        raise Invalid("amount", f"More than {MOST_AT_ONCE:,} at once is taken for a slip.")
    return nano


@transaction.atomic
def book_top_up(
    *, acting: Acting, organization: Organization, amount: str, currency: str, key: str, note: str = ""
) -> TopUp:
    """Money received goes into the organization's wallet, once for each `key`. Takes an operator.

    Raises NotAllowed, Invalid for what cannot be booked, and Conflict for a key that stands for another booking.
    """
    require(acting, Permission.OPERATE)
    amount_nano = read_amount(amount)
    if currency != organization.currency:
        raise Invalid("currency", f"The wallet of {organization.name} is kept in {organization.currency}.")
    if not 0 < len(key) <= _KEY_LENGTH:
        raise Invalid("key", f"The key of a booking has between 1 and {_KEY_LENGTH} characters.")
    if len(note) > NOTE_LENGTH or "\x00" in note:
        raise Invalid("note", f"A note has at most {NOTE_LENGTH} characters.")
    # One at a time for each wallet, so that no two together are more than it can hold.
    Organization.objects.select_for_update(of=("self",)).get(pk=organization.pk)
    reference = uuid.uuid5(uuid.NAMESPACE_OID, f"yizhan:top-up:{organization.pk}:{key}")
    is_new = not Posting.objects.filter(reference=reference).exists()
    if is_new:
        _check_room(organization, amount_nano)
    try:
        posting = top_up(
            acting=acting,
            organization=organization,
            amount_nano=amount_nano,
            reference=reference,
            memo=note.strip(),
        )
    except Conflict as exc:
        raise Conflict("key", "This key was used for a top-up of another amount.") from exc
    with connection.cursor() as cursor:
        balance = balances(cursor, [organization.pk])[organization.pk]
    return TopUp(posting, amount_nano, organization.currency, balance, is_new)


def _check_room(organization: Organization, amount_nano: int) -> None:
    """Sums of a wallet are bigints too: one that is none would stop every call of the organization."""
    with connection.cursor() as cursor:
        booked = credits_of(cursor, [organization.pk])[organization.pk]
    if booked + amount_nano > MOST_NANO:
        raise Invalid("amount", "The wallet cannot hold so much: all its credits are below 9,223,372,036.")
