import pytest
from django.test import Client

from accounts.models import User
from tests.console.cast import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann(cast) -> User:
    user = cast.users["ann"]
    user.set_password(PASSWORD)
    user.save()
    return user


def test_signing_in_leads_to_the_page_that_was_asked_for(ann):
    browser = Client()

    response = browser.post("/sign-in/", {"login": "Ann@Example.com", "password": PASSWORD, "next": "/keys/"})

    assert (response.status_code, response["Location"]) == (302, "/keys/")
    assert browser.get("/keys/").status_code == 200


@pytest.mark.parametrize(
    "form",
    [{"login": "ann@example.com", "password": "wrong"}, {"login": "no@example.com", "password": PASSWORD}],
)
def test_a_wrong_pair_is_told_beside_the_password_and_does_not_say_which_half_is_wrong(ann, form):
    page = Client().post("/sign-in/", form)

    assert page.status_code == 200
    assert page.context["form"].non_field_errors() == [
        "The email address and/or password you specified are not correct."
    ]
    assert 'class="field-error" role="alert"' in page.content.decode()


def test_an_empty_form_names_each_field(ann):
    page = Client().post("/sign-in/", {}).content.decode()

    assert 'id="id_login-error"' in page
    assert 'id="id_password-error"' in page
    assert page.count('aria-invalid="true"') == 2


def test_a_page_of_somebody_elses_site_is_no_place_to_go_on_to(ann):
    response = Client().post(
        "/sign-in/", {"login": ann.email, "password": PASSWORD, "next": "https://evil.example/"}
    )

    assert response["Location"] == "/"


def test_after_many_wrong_tries_even_the_right_password_waits(ann):
    for _ in range(6):
        Client().post("/sign-in/", {"login": ann.email, "password": "wrong"})

    page = Client().post("/sign-in/", {"login": ann.email, "password": PASSWORD})

    assert page.status_code in (200, 429)
    assert "_auth_user_id" not in page.client.session


def test_signing_out_ends_the_session(ann):
    browser = Client()
    browser.force_login(ann)

    assert browser.get("/sign-out/").status_code == 200
    browser.post("/sign-out/")

    assert browser.get("/keys/").status_code == 302


def test_nobody_can_sign_up(db):
    page = Client().post(
        "/sign-up/", {"email": "new@example.com", "password1": PASSWORD, "password2": PASSWORD}
    )

    assert "No sign-up" in page.content.decode()
    assert not User.objects.filter(email="new@example.com").exists()


def test_the_password_can_be_changed_by_who_knows_it(ann):
    browser = Client()
    browser.force_login(ann)
    new = "another quite long one"

    wrong = browser.post("/password/", {"oldpassword": "x", "password1": new, "password2": new})
    short = browser.post("/password/", {"oldpassword": PASSWORD, "password1": "short", "password2": "short"})
    done = browser.post("/password/", {"oldpassword": PASSWORD, "password1": new, "password2": new})

    assert "oldpassword" in wrong.context["form"].errors
    assert "password1" in short.context["form"].errors
    assert done.status_code == 302
    ann.refresh_from_db()
    assert ann.check_password(new)
    assert browser.get("/keys/").status_code == 200


def test_the_form_needs_its_token(ann):
    browser = Client(enforce_csrf_checks=True)

    assert browser.post("/sign-in/", {"login": ann.email, "password": PASSWORD}).status_code == 403
