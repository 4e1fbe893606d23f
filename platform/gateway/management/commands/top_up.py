"""`manage.py top_up ORGANIZATION AMOUNT CURRENCY`: books money received into an organization's wallet."""

import uuid
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from accounts import scope
from accounts.errors import ServiceError
from accounts.models import Organization
from accounts.permissions import SYSTEM
from billing.top_ups import TopUp, book_top_up
from console.amounts import decimal_string

__all__ = ["Command"]


class Command(BaseCommand):
    help = "Book money received into an organization's wallet. Calls have it within a second."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("organization", help="its name, as in the apply file")
        parser.add_argument("amount", help="a decimal number such as 100.00")
        parser.add_argument("currency", help="the wallet's currency, such as CNY: a check against slips")
        parser.add_argument("--note", default="", help="kept with the booking and shown on the money page")
        parser.add_argument(
            "--key", default="", help="makes it happen once, however often it is run, such as a transfer's id"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Exits with 1 and changes nothing if it cannot be booked as it is said."""
        try:
            with scope.site("top-up by command"):
                booked = self._book(options)
        except ServiceError as exc:
            raise CommandError(str(exc)) from exc
        except OperationalError as exc:
            raise CommandError(f"the database does not answer: {exc}", returncode=3) from exc
        amount, balance = decimal_string(booked.amount_nano), decimal_string(booked.balance_nano)
        name, currency = options["organization"], booked.currency
        if not booked.is_new:
            self.stdout.write(
                f"booked before, under this key, as posting {booked.posting.pk}; nothing changed"
            )
        else:
            self.stdout.write(f"posting {booked.posting.pk}: {amount} {currency} into the wallet of {name}")
        self.stdout.write(f"balance: {balance} {currency}")

    def _book(self, options: dict[str, Any]) -> TopUp:
        organization = Organization.objects.filter(name=options["organization"]).first()
        if organization is None:
            raise CommandError(f"there is no organization named {options['organization']!r}")
        return book_top_up(
            acting=SYSTEM,
            organization=organization,
            amount=options["amount"],
            currency=options["currency"],
            key=options["key"] or str(uuid.uuid4()),
            note=options["note"],
        )
