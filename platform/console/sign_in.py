"""How people sign in: django-allauth by e-mail and password. Nobody can sign up; members are added or invited."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest

__all__ = ["ConsoleAccountAdapter"]

# A page that greets with its content needs no message that says so.
_UNSAID = ("account/messages/logged_in.txt", "account/messages/logged_out.txt")


class ConsoleAccountAdapter(DefaultAccountAdapter):
    """allauth's door with sign-up closed."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def add_message(
        self, request: HttpRequest, level: int, message_template: str | None = None, *args: Any, **kwargs: Any
    ) -> None:
        if message_template not in _UNSAID:
            super().add_message(request, level, message_template, *args, **kwargs)
