"""`manage.py migrate`: Django's own, run as `relay_owner`, which owns every table."""

from typing import Any

from django.core.management.commands.migrate import Command as DjangoMigrate
from django.db import connections

from billing import partitions


class Command(DjangoMigrate):
    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        role = connection.settings_dict["OPTIONS"].get("assume_role")
        connection.close()
        connection.settings_dict["OPTIONS"]["assume_role"] = "relay_owner"
        try:
            super().handle(*args, **options)
            partitions.keep()
        finally:
            connection.close()
            connection.settings_dict["OPTIONS"]["assume_role"] = role
