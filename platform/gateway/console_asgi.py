"""The ASGI application of a console process: Django."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

from django.core.asgi import get_asgi_application  # noqa: E402 - settings must be named first

__all__ = ["application"]

application = get_asgi_application()
