import asyncio

import pytest
from django.http import HttpResponse
from django.test import Client, RequestFactory

from console.caching import keep_nothing

pytestmark = pytest.mark.django_db
NOTHING = "private, no-store"


@pytest.mark.parametrize(
    "path",
    ["/", "/calls/", "/keys/", "/money/", "/nowhere/", "/api/v1/keys/", "/api/v1/nothing/", "/healthz"],
)
def test_nothing_of_a_page_or_an_answer_is_kept(cast, signed_in, path):
    assert signed_in("ann").get(path)["Cache-Control"] == NOTHING


def test_refusals_and_answers_to_keys_are_not_kept(cast, with_key, store):
    assert with_key("manager").get("/v1/balance")["Cache-Control"] == NOTHING
    assert Client().get("/v1/usage")["Cache-Control"] == NOTHING
    assert Client().get("/keys/")["Cache-Control"] == NOTHING
    assert "no-store" in Client().get("/sign-in/")["Cache-Control"]


def test_a_static_file_keeps_its_own():
    response = Client().get("/static/console/css/base.css")

    assert response.status_code == 200
    assert "no-store" not in response["Cache-Control"]
    response.close()


def test_a_view_that_knows_better_is_heard():
    answer = keep_nothing(lambda request: HttpResponse(headers={"Cache-Control": "max-age=9"}))

    assert answer(RequestFactory().get("/"))["Cache-Control"] == "max-age=9"


async def _page(request):
    return HttpResponse()


def test_it_works_in_an_asynchronous_chain():
    response = asyncio.run(keep_nothing(_page)(RequestFactory().get("/")))

    assert response["Cache-Control"] == NOTHING
