"""`manage.py seed`: what a first start makes, so that there is something to look at and to call.

Once there is any organization it makes nothing. A later start only points the practice upstream to the port
at which the practice provider listens now. The password and the key are printed here, once, and kept nowhere
in the clear.
"""

import json
import secrets
from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection

from accounts import scope
from accounts.models import Organization, Role, User
from accounts.permissions import SYSTEM
from accounts.services.keys import KeyTerms, create_key
from accounts.services.members import add_member
from accounts.services.organizations import create_organization
from billing.ledger import book_opening_credit
from billing.prices import PriceTerms, set_price
from gateway import env
from relay.models import Kind, Protocol, Upstream
from relay.services.models import ModelTerms, RouteTerms, save_model, set_routes
from relay.services.upstreams import UpstreamTerms, save_upstream

__all__ = ["Command"]

ORGANIZATION = "demo"
OWNER = "owner@demo.example"
OPENING_NANO = 100 * 10**9
UPSTREAM = "practice"
MODELS = {
    "practice-chat": ModelTerms(),
    "practice-fast": ModelTerms(),
    "practice-reasoner": ModelTerms(),
    "practice-embedding": ModelTerms(kind=Kind.EMBEDDING, context_tokens=8192),
}
_FREE = PriceTerms(currency="CNY", input=Decimal(0), output=Decimal(0))


class Command(BaseCommand):
    help = "Make the demonstration organization of a first start; later, keep the practice upstream's port."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        with scope.site("seed"):
            with connection.cursor() as cursor:
                # Two machines that start at once make one demonstration, and one that applies a file waits.
                cursor.execute("SELECT pg_advisory_xact_lock(hashtext('gateway.apply'))")
            if Organization.objects.exists():
                _move_practice()
                return
            password, key = _make_demonstration()
            if _wants_practice():
                _make_practice(int(env.practice_port() or 0))
        # After the commit: what is told must exist.
        self.stdout.write(f"console: {_console_url()} login {OWNER} password {password}")
        self.stdout.write(f"key: {key}")


def _make_demonstration() -> tuple[str, str]:
    """The organization, its owner (who also operates the site) and a key; returns password and key."""
    organization = create_organization(acting=SYSTEM, name=ORGANIZATION, title="Demonstration")
    book_opening_credit(acting=SYSTEM, organization=organization, amount_nano=OPENING_NANO)
    password = secrets.token_urlsafe(15)
    owner = add_member(
        acting=SYSTEM, organization=organization, email=OWNER, role=Role.OWNER, password=password
    )
    User.objects.filter(pk=owner.user_id).update(is_operator=True)
    made = create_key(acting=SYSTEM, organization=organization, name="demo", terms=KeyTerms(member=owner))
    return password, made.clear


def _wants_practice() -> bool:
    """Whether to offer practice models: unless forbidden, beside the embedded database or where asked for by
    name.

    A database that was given is somebody's real installation, and gets no invented upstream.
    """
    if not env.practice_allowed() or env.practice_port() is None:
        return False
    return env.named("PRACTICE") is not None or _is_embedded()


def _is_embedded() -> bool:
    """Whether the database is the one that `manage.py up` of this VAR_DIR runs itself."""
    try:
        found = json.loads((env.var_dir() / "run" / "servers.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("database_url") == env.database_url()


def _base_url(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


def _make_practice(port: int) -> None:
    """The practice provider as an upstream, with models that are free and say in their names what they are."""
    terms = UpstreamTerms(
        protocol=Protocol.OPENAI,
        base_url=_base_url(port),
        credential="practice",
        allow_private=True,
        probe=False,
    )
    upstream = save_upstream(acting=SYSTEM, name=UPSTREAM, terms=terms)
    for name, terms_of_model in MODELS.items():
        model = save_model(acting=SYSTEM, name=name, terms=terms_of_model)
        set_routes(acting=SYSTEM, model=model, routes=[RouteTerms(upstream, name)])
        set_price(acting=SYSTEM, model_name=name, terms=_FREE)


def _move_practice() -> None:
    """Point the practice upstream to where the practice provider listens now."""
    port = env.practice_port()
    upstream = Upstream.objects.filter(name=UPSTREAM, base_url__startswith="http://127.0.0.1:").first()
    if port is None or upstream is None or upstream.base_url == _base_url(port):
        return
    Upstream.objects.filter(pk=upstream.pk).update(base_url=_base_url(port))


def _console_url() -> str:
    """Where a person on this machine opens the console."""
    given = env.public_url()
    if given is not None:
        return given
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(env.host(), env.host())
    return f"http://{f'[{host}]' if ':' in host else host}:{env.port()}"
