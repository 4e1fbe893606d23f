"""The ASGI application of a console process: Django."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

from django.core.asgi import get_asgi_application
from django.template.loader import get_template
from django.urls import get_resolver

__all__ = ["application", "load_pages"]

application = get_asgi_application()


def load_pages() -> None:
    """Import every page's code and compile the first page, which the first visitor would wait for otherwise."""
    get_resolver().url_patterns  # noqa: B018 - a cached property
    get_template("account/login.html")
