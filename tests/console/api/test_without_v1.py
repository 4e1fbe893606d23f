import pytest
from django.test import Client


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("post", "/chat/completions", "/v1/chat/completions"),
        ("post", "/chat/completions/", "/v1/chat/completions/"),
        ("post", "/openai/chat/completions", "/v1/chat/completions"),
        ("post", "/completions", "/v1/completions"),
        ("post", "/embeddings", "/v1/embeddings"),
        ("post", "/responses", "/v1/responses"),
        ("post", "/messages", "/v1/messages"),
        ("get", "/models", "/v1/models"),
        ("get", "/models/kimi-k2", "/v1/models/kimi-k2"),
        ("get", "/balance", "/v1/balance"),
    ],
)
def test_a_call_without_v1_is_told_the_right_address_in_the_form_that_its_program_reads(method, path, right):
    client = Client(enforce_csrf_checks=True, headers={"Accept": "application/json"})
    answer = getattr(client, method)(
        path, **({"content_type": "application/json"} if method == "post" else {})
    )

    assert answer.status_code == 404
    error = answer.json()["error"]
    assert f"Did you mean {right}?" in error["message"]
    assert {name: error[name] for name in ("type", "param", "code")} == {
        "type": "invalid_request_error",
        "param": None,
        "code": "unknown_url",
    }


def test_a_browser_gets_a_page(db):
    answer = Client(headers={"Accept": "text/html"}).get("/models")

    assert answer.status_code == 404
    assert "text/html" in answer["Content-Type"]


def test_other_unknown_paths_are_as_they_were(db):
    for path in ("/no/such/page", "/chat", "/chat/completions/more", "/modelss"):
        answer = Client().get(path)
        assert (answer.status_code, answer["Content-Type"].partition(";")[0]) == (404, "text/html")
