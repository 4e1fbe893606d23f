"""A file's bytes -> what it declares, or everything that is wrong with it."""

from gateway.applyfile.declared import Declared
from gateway.applyfile.nodes import read_nodes
from gateway.applyfile.places import Place, open_table
from gateway.applyfile.problems import Problems
from gateway.applyfile.secrets import SecretSource
from gateway.applyfile.sections.models import read_models
from gateway.applyfile.sections.organizations import read_organizations
from gateway.applyfile.sections.upstreams import read_upstreams

__all__ = ["read_declared"]

_SECTIONS = ("upstreams", "models", "organizations")


def read_declared(data: bytes, *, problems: Problems, secrets: SecretSource) -> Declared:
    """What the file declares. Raises FileRefused with all that is wrong with it."""
    root = read_nodes(data, problems)
    problems.refuse_if_any()
    if root is None:
        return Declared(None, {}, None, None)
    table = open_table(Place(root, "", problems), _SECTIONS)
    sections = table.fields if table else {}
    upstreams, accounts_of = None, dict[str, tuple[str, ...]]()
    if "upstreams" in sections:
        upstreams, accounts_of = read_upstreams(sections["upstreams"], secrets)
    models = read_models(sections["models"]) if "models" in sections else None
    organizations = None
    if "organizations" in sections:
        organizations = read_organizations(sections["organizations"], secrets)
    problems.refuse_if_any()
    return Declared(upstreams, accounts_of, models, organizations)
