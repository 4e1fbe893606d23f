"""The cast: acme with an owner, an admin, a finance person and an employee; and a stranger, who must see nothing."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from accounts import scope
from accounts.models import Organization
from accounts.permissions import SYSTEM
from accounts.services.members import add_member
from accounts.services.organizations import create_organization


@pytest.fixture(autouse=True)
def quick_passwords(settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def everything(db: None) -> Iterator[None]:
    """The test runs in the site scope."""
    with scope.site("test"):
        yield


@pytest.fixture
def acme(everything: None) -> Organization:
    return create_organization(acting=SYSTEM, name="acme", title="Acme Ltd")


@pytest.fixture
def stranger(everything: None) -> Organization:
    return create_organization(acting=SYSTEM, name="stranger", title="Stranger")


@pytest.fixture
def cast(acme: Organization, stranger: Organization) -> SimpleNamespace:
    """One member of each role of acme, and `outsider`, the owner of the stranger's organization."""
    people = {
        role: add_member(acting=SYSTEM, organization=acme, email=f"{role}@acme.example", role=role)
        for role in ("owner", "admin", "finance", "employee")
    }
    outsider = add_member(acting=SYSTEM, organization=stranger, email="eve@stranger.example", role="owner")
    return SimpleNamespace(**people, outsider=outsider)
