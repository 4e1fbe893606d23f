import pytest
from django.http import Http404
from django.test import Client

from accounts import scope
from accounts.permissions import SYSTEM
from accounts.services.members import add_member, switch_off_member
from console.gate import find_visitor

ROOMS = ["/", "/calls/", "/keys/", "/keys/new/", "/money/"]


@pytest.mark.parametrize("path", ROOMS)
def test_an_owner_sees_every_room(signed_in, path):
    response = signed_in("ann").get(path)

    assert response.status_code == 200
    assert "Acme Ltd" in response.content.decode()


@pytest.mark.parametrize("path", ROOMS)
def test_without_signing_in_a_room_leads_to_the_door(cast, path):
    response = Client(headers={"accept": "text/html"}).get(path)

    assert response.status_code == 302
    assert response["Location"] == f"/sign-in/?next={path}"


@pytest.mark.parametrize("path", ROOMS)
def test_a_stranger_gets_404_for_an_organization_they_name(signed_in, path):
    assert signed_in("bob").get(path, {"organization": "acme"}).status_code == 404
    assert signed_in("sam").get(path, {"organization": "acme"}).status_code == 404
    assert signed_in("sam").get(path, {"organization": "no-such"}).status_code == 404


def test_a_person_without_an_organization_is_told_what_to_do(signed_in):
    response = signed_in("sam").get("/")

    assert response.status_code == 403
    assert "sam@example.com" in response.content.decode()


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/money/", {"ann", "adam", "fay"}),
        ("/keys/new/", {"ann", "adam"}),
        ("/keys/", {"ann", "adam", "fay", "erin"}),
    ],
)
def test_rooms_are_open_by_role(signed_in, path, allowed):
    for name in ("ann", "adam", "fay", "erin"):
        assert signed_in(name).get(path).status_code == (200 if name in allowed else 403), name


def test_the_navigation_shows_only_rooms_that_open(signed_in):
    assert 'href="/money/"' not in signed_in("erin").get("/").content.decode()
    assert 'href="/money/"' in signed_in("fay").get("/").content.decode()


def test_a_member_who_was_switched_off_is_a_stranger(cast, signed_in):
    with scope.organization(cast.acme.pk):
        switch_off_member(acting=SYSTEM, member=cast.members["erin"])

    assert signed_in("erin").get("/calls/", {"organization": "acme"}).status_code == 404
    assert signed_in("erin").get("/calls/").status_code == 403


def test_an_operator_enters_every_organization_and_the_last_one_is_remembered(cast, signed_in):
    browser = signed_in("oli")

    assert "Bolt GmbH" in browser.get("/", {"organization": "bolt"}).context["visitor"].organization.title
    assert browser.get("/").context["visitor"].organization.name == "bolt"
    assert browser.get("/", {"organization": "nowhere"}).status_code == 404


def test_who_has_several_organizations_gets_a_switcher_and_links_that_name_the_one_looked_at(cast, signed_in):
    with scope.organization(cast.bolt.pk):
        add_member(acting=SYSTEM, organization=cast.bolt, email="ann@example.com", role="finance")

    page = signed_in("ann").get("/", {"organization": "bolt"}).content.decode()

    assert "Switch organization" in page
    assert 'href="/?organization=acme"' in page
    assert 'href="/calls/?organization=bolt"' in page


def test_a_form_acts_on_the_organization_it_was_made_for(cast, signed_in):
    with scope.organization(cast.bolt.pk):
        add_member(acting=SYSTEM, organization=cast.bolt, email="ann@example.com", role="owner")
    browser = signed_in("ann")
    browser.get("/", {"organization": "bolt"})

    browser.post("/keys/new/", {"organization": "acme", "name": "from-acme-tab", "models_mode": "all"})

    with scope.organization(cast.acme.pk):
        assert cast.acme.keys.filter(name="from-acme-tab").exists()


def test_find_visitor_prefers_the_asked_one_then_the_last_then_the_first(cast):
    with scope.organization(cast.bolt.pk):
        add_member(acting=SYSTEM, organization=cast.bolt, email="ann@example.com", role="finance")
    ann = cast.users["ann"]

    assert find_visitor(ann, "bolt", "acme").organization == cast.bolt
    assert find_visitor(ann, None, "bolt").organization == cast.bolt
    assert find_visitor(ann, None, "gone").organization == cast.acme
    assert find_visitor(cast.users["sam"], None) is None
    with pytest.raises(Http404):
        find_visitor(cast.users["sam"], "acme")


def test_the_list_of_organizations_holds_ones_own(signed_in):
    own = signed_in("ann").get("/organizations/").content.decode()
    found = signed_in("oli").get("/organizations/", {"q": "bol"}).content.decode()

    assert "Acme Ltd" in own
    assert "Bolt GmbH" not in own
    assert "Bolt GmbH" in found
    assert "Acme Ltd" not in found


def test_every_page_says_that_scripts_and_styles_come_from_here_only(signed_in):
    response = signed_in("ann").get("/calls/")

    assert "default-src 'self'" in response["Content-Security-Policy"]
    assert "unsafe" not in response["Content-Security-Policy"]
