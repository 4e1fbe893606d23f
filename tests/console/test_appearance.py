import pytest
from django.test import Client


@pytest.mark.django_db
def test_a_chosen_theme_is_kept_and_the_page_is_drawn_in_it_at_once(cast, signed_in):
    browser = signed_in("ann")

    response = browser.post("/theme/", {"theme": "dark", "next": "/keys/"})

    assert response["Location"] == "/keys/"
    assert response.cookies["theme"]["samesite"] == "Lax"
    assert 'data-theme="dark"' in browser.get("/keys/").content.decode()
    browser.post("/theme/", {"theme": ""})
    assert "data-theme=" not in browser.get("/keys/").content.decode().split("<body")[0]


def test_an_unknown_theme_leaves_it_to_the_system():
    browser = Client()

    assert browser.post("/theme/", {"theme": "neon"}).cookies["theme"].value == ""
    browser.cookies["theme"] = '"><script>'
    assert "<script>" not in browser.get("/sign-in/").content.decode().split("<head>")[0]


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_it_never_leads_to_another_site(target):
    assert Client().post("/theme/", {"theme": "dark", "next": target})["Location"] == "/"


def test_it_takes_a_form_only():
    assert Client().get("/theme/").status_code == 405
