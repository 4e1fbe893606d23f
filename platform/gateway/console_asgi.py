"""The ASGI application of a console process: Django."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

from django.core.asgi import get_asgi_application

__all__ = ["application"]

application = get_asgi_application()
