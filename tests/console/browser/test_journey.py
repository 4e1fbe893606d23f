import re

from playwright.sync_api import expect


def test_from_the_door_to_a_call_and_from_a_new_key_to_its_end(visit):
    window = visit()
    page = window.sign_in("ann")
    expect(page.get_by_role("heading", name="Calls per hour")).to_be_visible()

    page.get_by_role("navigation", name="Rooms").get_by_role("link", name="Calls").click()
    expect(page.locator(".calls tbody tr")).to_have_count(50)

    page.get_by_label("Model").fill("deepseek-v4")
    page.get_by_label("Model").press("Enter")
    expect(page.locator(".calls .what").first).to_have_text("deepseek-v4")
    expect(page).to_have_url(re.compile(r"model=deepseek-v4"))
    assert set(page.locator(".calls .what").all_inner_texts()) == {"deepseek-v4"}

    page.locator(".calls tbody tr").first.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Where the time went")).to_be_visible()
    expect(page.get_by_role("heading", name="What it cost, and why")).to_be_visible()
    assert page.locator(".waterfall tbody tr").count() >= 5

    page.get_by_role("link", name="Keys").first.click()
    page.get_by_role("link", name="New key").click()
    page.get_by_label("Name").fill("from the journey")
    page.get_by_label("Budget (CNY)").fill("2.5")
    page.get_by_label("Only these").check()
    page.get_by_label("kimi-k2").check()
    page.get_by_role("button", name="Make the key").click()

    clear = page.locator("#key-clear").inner_text()
    assert re.fullmatch(r"sk-yz-\w{8}-\w{43}", clear)
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == clear

    page.get_by_role("link", name="I have it").click()
    row = page.locator(".keys tbody tr", has_text="from the journey")
    expect(row).to_contain_text("kimi-k2")
    assert clear not in page.content()
    row.get_by_role("link", name="Revoke").click()
    page.get_by_label("Reason").fill("the journey ends")
    page.get_by_role("button", name="Revoke the key").click()
    expect(page.get_by_text("is revoked.")).to_be_visible()
    expect(page.locator(".keys tbody tr", has_text="from the journey")).to_have_count(0)

    page.locator(".person summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert window.complaints == []


def test_everything_works_without_scripts(visit):
    window = visit(scripts=False)
    page = window.sign_in("ann")

    page.get_by_role("link", name="Calls").first.click()
    page.get_by_label("Model").fill("deepseek-v4")
    page.get_by_role("button", name="Apply").click()
    expect(page).to_have_url(re.compile(r"model=deepseek-v4"))
    expect(page.locator(".calls .what").first).to_have_text("deepseek-v4")

    page.locator(".person summary").click()
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.locator(".person summary").click()
    page.get_by_role("button", name="简体中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh-hans")
    expect(page.get_by_role("heading", level=1)).to_have_text("调用")


def test_the_theme_changes_at_once_and_stays(visit):
    window = visit()
    page = window.sign_in("ann")
    page.evaluate("document.body.dataset.sameDocument = 'yes'")

    page.locator(".person summary").click()
    page.get_by_role("button", name="Dark").click()

    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("body")).to_have_attribute("data-same-document", "yes")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert window.complaints == []


def test_the_keyboard_reaches_the_content_and_closes_a_menu(visit):
    page = visit().sign_in("ann")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()

    page.locator(".person summary").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
    expect(page.locator(".person summary")).to_be_focused()


def test_a_filter_that_is_taken_back_leaves_no_trace(visit):
    page = visit().sign_in("ann")
    page.goto(page.url + "calls/?model=deepseek-v4&min_ttft_ms=soon")

    expect(page.locator("#filter-min_ttft_ms-error")).to_be_visible()
    page.get_by_role("link", name="Clear").click()

    expect(page.locator(".calls tbody tr")).to_have_count(50)
    expect(page.get_by_label("Model")).to_have_value("")
