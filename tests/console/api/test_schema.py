import io
import json

import pytest
from django.core.management import call_command
from django.test import Client


def test_the_schema_is_valid_and_complete():
    """Every view is described: a warning would be an error here."""
    out = io.StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", stdout=out)
    schema = json.loads(out.getvalue())

    assert schema["openapi"].startswith("3.1")
    assert set(schema["paths"]) == {
        "/api/v1/calls/",
        "/api/v1/calls/{call_id}/",
        "/api/v1/keys/",
        "/api/v1/keys/{key_id}/",
        "/api/v1/organizations/{name}/top_ups/",
    }
    assert "key" in schema["components"]["securitySchemes"]


@pytest.mark.django_db
def test_anybody_may_read_the_schema():
    response = Client(headers={"accept": "application/json"}).get("/api/v1/schema/?format=json")

    assert response.status_code == 200
    assert "/api/v1/calls/" in response.json()["paths"]


@pytest.mark.django_db
def test_every_operation_names_its_refusals():
    schema = Client().get("/api/v1/schema/?format=json").json()

    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            assert {"401", "403", "503"} <= set(operation["responses"]), f"{method} {path}"
