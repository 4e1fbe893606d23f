"""An operator's form for money received: asked, shown once more with what it comes to, then booked."""

import uuid
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods

from accounts.errors import Conflict, Invalid
from billing.top_ups import AMOUNT_DIGITS, MOST_AT_ONCE, NOTE_LENGTH, book_top_up, read_amount
from console.amounts import decimal_string
from console.gate import PageRequest, organization_page
from console.money import queries

__all__ = ["top_up"]


class TopUpForm(forms.Form):
    """`currency` is the one that the person saw; `key` makes one confirmed form one booking."""

    amount = forms.DecimalField(
        label=_("Amount"),
        max_value=MOST_AT_ONCE,
        max_digits=len(str(MOST_AT_ONCE)) + AMOUNT_DIGITS,
        decimal_places=AMOUNT_DIGITS,
        localize=False,
        help_text=_("What was received, in the wallet's currency."),
        widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
    )
    note = forms.CharField(
        label=_("Note"),
        required=False,
        max_length=NOTE_LENGTH,
        help_text=_("Such as the number of the transfer. The organization sees it."),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    currency = forms.CharField(max_length=3)
    key = forms.UUIDField()

    def __init__(self, *args: Any, wallet_currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wallet_currency = wallet_currency

    def clean_amount(self) -> str:
        amount = self.cleaned_data["amount"]
        if amount <= 0:
            raise forms.ValidationError(_("A top-up is above 0."))
        return f"{amount:f}"

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("currency") != self._wallet_currency:
            self.add_error(None, _("The wallet's currency is another one by now. Look at the amount again."))
        return cleaned

    def refuse(self, refusal: Invalid) -> None:
        """Put a service's refusal beside the field that it names."""
        self.add_error(refusal.field if refusal.field in ("amount", "note") else None, str(refusal))


@require_http_methods(["GET", "HEAD", "POST"])
@organization_page(needs="is_operator")
def top_up(request: PageRequest) -> HttpResponse:
    visitor = request.visitor
    organization = visitor.organization
    form = TopUpForm(request.POST or None, wallet_currency=organization.currency)
    balance = queries.balance_nano(organization.pk)
    # A form that is shown again is another booking.
    context: dict[str, Any] = {
        "form": form,
        "balance": balance,
        "currency": organization.currency,
        "key": uuid.uuid4(),
    }
    if request.method != "POST" or not form.is_valid():
        return render(request, "console/top_up.html", context)
    if "confirmed" not in request.POST:
        amount_nano = read_amount(form.cleaned_data["amount"])
        context |= {
            "amount": amount_nano,
            "balance_after": balance + amount_nano,
            "plain_amount": decimal_string(amount_nano),
        }
        return render(request, "console/top_up_confirm.html", context)
    try:
        booked = book_top_up(
            acting=visitor.acting,
            organization=organization,
            amount=form.cleaned_data["amount"],
            currency=form.cleaned_data["currency"],
            key=str(form.cleaned_data["key"]),
            note=form.cleaned_data["note"],
        )
    except Conflict:
        form.add_error(None, _("This form was sent before with another amount. Begin again."))
    except Invalid as refusal:
        form.refuse(refusal)
    else:
        words = {
            "amount": f"{decimal_string(booked.amount_nano)} {booked.currency}",
            "posting": booked.posting.pk,
        }
        said = (
            gettext("%(amount)s is booked as posting %(posting)s. Calls have it within a second.")
            if booked.is_new
            else gettext(
                "%(amount)s had been booked before, as posting %(posting)s. Nothing was booked twice."
            )
        )
        messages.success(request, said % words)
        return redirect(visitor.url("console:money", show="credits"))
    return render(request, "console/top_up.html", context)
