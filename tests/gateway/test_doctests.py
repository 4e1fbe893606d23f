import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "embedded.postgres",
        "embedded.roles",
        "env_values",
        "secret_store",
        "start.listen",
        "start.probe",
        "supervisor.guard",
        "supervisor.keeper",
    ],
)
def test_the_doctests_hold(name):
    result = doctest.testmod(importlib.import_module(f"gateway.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
