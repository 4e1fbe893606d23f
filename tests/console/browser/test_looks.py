"""Every page at both widths, in both languages and both themes: nothing runs out of the page, nobody is shut out."""

import pytest
from axe_playwright_python.sync_playwright import Axe

# The audit takes most of the time, on long tables above all: both themes, both widths and both languages get one, on
# pages that hold every part; the others are measured.
DRESSES = [
    ({"width": 1440, "locale": "en-GB", "theme": "light"}, True),
    ({"width": 1440, "locale": "en-GB", "theme": "dark"}, False),
    ({"width": 390, "locale": "en-GB", "theme": "light"}, False),
    ({"width": 360, "locale": "zh-CN", "theme": "dark"}, True),
]
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations"],
}
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def look(window, path: str, *, audit: bool = True) -> list[str]:
    """What is wrong with the page at this path, as short lines."""
    page = window.go(path)
    wrong = [f"{path}: the page is {width} px too wide" for width in [page.evaluate(OVERFLOW)] if width > 0]
    if not audit:
        return wrong
    for violation in Axe().run(page, options=RULES).response["violations"]:
        wrong += [f"{path}: {violation['id']}: {node['html'][:200]}" for node in violation["nodes"]]
    return wrong


@pytest.mark.parametrize(("dress", "audit"), DRESSES)
def test_every_page_is_readable_by_everybody(visit, dress, audit):
    window = visit(**dress)
    wrong = look(window, "/sign-in/", audit=audit)
    page = window.sign_in("ann")
    page.goto(f"{window.town}/calls/?status=ok")
    usual = page.locator(".calls tbody tr a").nth(1).get_attribute("href")
    longest = page.locator(".calls tbody tr a").nth(0).get_attribute("href")
    page.goto(f"{window.town}/calls/?status=refused")
    refused = page.locator(".calls tbody tr a").nth(0).get_attribute("href")
    page.goto(f"{window.town}/keys/")
    key = page.locator(".keys tbody tr a", has_text="manager").first.get_attribute("href")
    audited = (
        "/",
        "/calls/?status=refused",
        "/calls/?range=custom&min_ttft_ms=soon",
        usual,
        "/keys/",
        "/keys/new/",
        f"{key}revoke/",
        "/money/",
        "/organizations/",
        "/password/",
    )
    measured = ("/calls/", "/calls/?model=none", longest, refused, "/keys/?show=revoked", key, "/sign-out/")
    for path in audited:
        wrong += look(window, path, audit=audit)
    for path in measured:
        wrong += look(window, path, audit=False)

    assert wrong == []
    assert window.complaints == []


def test_a_page_that_is_not_there_is_readable_too(visit):
    window = visit()
    window.sign_in("ann")

    assert look(window, "/no/such/page/") == []


def test_the_first_call_box_is_readable(visit):
    window = visit(width=360)
    window.sign_in("bob")

    assert look(window, "/") == []
    assert window.complaints == []
