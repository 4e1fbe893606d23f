"""How connections to PostgreSQL are opened: the address, and the role that is taken on.

The login of `DATABASE_URL` owns nothing itself. It takes on `relay_owner` (migrations), `relay_app` (everything else)
or `relay_ingest` (usage records and their postings).
"""

from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["Role", "conninfo", "django_settings"]

Role = Literal["relay_owner", "relay_app", "relay_ingest"]


def _parts(url: str) -> dict[str, str]:
    split = urlsplit(url)
    if split.scheme not in ("postgres", "postgresql"):
        raise ValueError("DATABASE_URL must start with postgresql://")
    query = dict(parse_qsl(split.query))
    host = unquote(split.hostname or "") or query.pop("host", "")
    parts = {
        "dbname": unquote(split.path.lstrip("/")),
        "user": unquote(split.username or ""),
        "password": unquote(split.password or ""),
        "host": host,
        "port": str(split.port or query.pop("port", "")),
        **query,
    }
    return {name: value for name, value in parts.items() if value}


def conninfo(url: str, *, role: Role, application: str = "yizhan") -> dict[str, str]:
    """Pure. Keyword arguments for `psycopg.connect` that take on `role` in the first packet."""
    return {**_parts(url), "options": f"-c role={role}", "application_name": application}


def django_settings(url: str, *, role: Role) -> dict[str, Any]:
    """Pure. Django's DATABASES entry. No persistent connections, as Django asks under ASGI."""
    parts = _parts(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.pop("dbname", ""),
        "USER": parts.pop("user", ""),
        "PASSWORD": parts.pop("password", ""),
        "HOST": parts.pop("host", ""),
        "PORT": parts.pop("port", ""),
        "OPTIONS": {**parts, "assume_role": role},
        "CONN_MAX_AGE": 0,
        "TEST": {"MIGRATE": True},
    }
