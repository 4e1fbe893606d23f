"""The form of a key: its name and the terms under which it may be used."""

from dataclasses import replace
from typing import Any, cast

from django import forms
from django.utils.translation import gettext_lazy as _

from accounts.errors import Conflict, Invalid
from accounts.limits import MOST_CALLS, Limits
from accounts.models import Key, Member, Organization, Scope
from accounts.queries import members_of
from accounts.services.keys import KeyTerms, terms_of
from console.amounts import NANO_DIGITS, decimal_string, nano_of
from relay.models import Model

__all__ = ["KeyForm"]

ALL, SOME = "all", "some"
_INPUT_FORMAT = "%Y-%m-%dT%H:%M"


class KeyForm(forms.Form):
    """Bound to one organization; `key` is the one that is changed, None for a new one."""

    name = forms.CharField(
        label=_("Name"), max_length=100, help_text=_("Such as the program or the person that will hold it.")
    )
    member = forms.ChoiceField(
        label=_("Member"),
        required=False,
        help_text=_("Whose calls these are. They see them in this console."),
    )
    models_mode = forms.ChoiceField(
        label=_("Models"),
        choices=[(ALL, _("All models on offer")), (SOME, _("Only these"))],
        widget=forms.RadioSelect,
        initial=ALL,
    )
    models = forms.MultipleChoiceField(label=_("Models"), required=False, widget=forms.CheckboxSelectMultiple)
    budget = forms.DecimalField(
        label=_("Budget"),
        required=False,
        min_value=0,
        max_digits=9 + NANO_DIGITS,
        decimal_places=NANO_DIGITS,
        help_text=_("What it may spend for life. Empty: no limit of its own."),
    )
    rpm = forms.IntegerField(
        label=_("Calls a minute"),
        required=False,
        min_value=1,
        max_value=MOST_CALLS,
        help_text=_("Empty: no limit of its own."),
    )
    concurrency = forms.IntegerField(
        label=_("Calls at once"),
        required=False,
        min_value=1,
        max_value=MOST_CALLS,
        help_text=_("Empty: no limit of its own."),
    )
    expires_at = forms.DateTimeField(
        label=_("Expires"),
        required=False,
        input_formats=[_INPUT_FORMAT, f"{_INPUT_FORMAT}:%S"],
        widget=forms.DateTimeInput(format=_INPUT_FORMAT, attrs={"type": "datetime-local"}),
        help_text=_("Empty: never."),
    )
    manage = forms.BooleanField(
        label=_("It may also manage the organization"),
        required=False,
        help_text=_(
            "Read all calls and the balance, make, change and revoke keys. "
            "Never give such a key to a program that only calls models."
        ),
    )

    def __init__(self, *args: Any, organization: Organization, key: Key | None = None, **kwargs: Any) -> None:
        if key is not None:
            kwargs["initial"] = _initial(key)
        super().__init__(*args, **kwargs)
        self._key = key
        self._members = {str(member.pk): member for member in members_of(organization)}
        choices = [(pk, member.user.email) for pk, member in self._members.items()]
        self._choices("member").choices = [("", _("Nobody in particular")), *choices]
        names = list(Model.objects.filter(enabled=True).order_by("name").values_list("name", flat=True))
        names += sorted(set((key.allowed_models if key is not None else None) or ()) - set(names))
        self._choices("models").choices = [(name, name) for name in names]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("models_mode") == SOME and not cleaned.get("models") and "models" not in self.errors:
            self.add_error("models", _("Choose at least one model."))
        return cleaned

    def terms(self) -> KeyTerms:
        """The terms that the valid form asks for. Scopes it does not show stay as they are."""
        cleaned = self.cleaned_data
        before = terms_of(self._key) if self._key is not None else KeyTerms()
        scopes = [name for name in before.scopes if name != Scope.MANAGE]
        if cleaned["manage"]:
            scopes.append(Scope.MANAGE)
        budget = cleaned["budget"]
        return replace(
            before,
            member=self._member(cleaned["member"]),
            allowed_models=tuple(cleaned["models"]) if cleaned["models_mode"] == SOME else None,
            scopes=tuple(scopes),
            limits=Limits(
                budget_nano=None if budget is None else nano_of(str(budget)),
                rpm=cleaned["rpm"],
                concurrency=cleaned["concurrency"],
            ),
            expires_at=cleaned["expires_at"],
        )

    def refuse(self, refusal: Invalid) -> None:
        """Put a service's refusal beside the field that it names."""
        field = {"value": None, "scopes": "manage"}.get(refusal.field, refusal.field)
        text: Any = str(refusal)
        if isinstance(refusal, Conflict) and field == "name":
            text = _("A key that is in use has this name already.")
        self.add_error(field if field in self.fields else None, text)

    def _choices(self, name: str) -> forms.ChoiceField:
        return cast(forms.ChoiceField, self.fields[name])

    def _member(self, pk: str) -> Member | None:
        return self._members[pk] if pk else None


def _initial(key: Key) -> dict[str, Any]:
    return {
        "name": key.name,
        "member": str(key.member_id or ""),
        "models_mode": ALL if key.allowed_models is None else SOME,
        "models": key.allowed_models or [],
        "budget": None if key.budget_nano is None else decimal_string(key.budget_nano),
        "rpm": key.rpm,
        "concurrency": key.concurrency,
        "expires_at": key.expires_at,
        "manage": Scope.MANAGE in key.scopes,
    }
