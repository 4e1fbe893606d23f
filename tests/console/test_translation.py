"""The catalogue is complete and compiled: every text of the sources stands in it, translated, and `.mo` is current.

Read without gettext's programs, so that it holds on a machine that has none of them.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import polib
import pytest
from django.utils.translation import gettext, override
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "locale/zh_Hans/LC_MESSAGES/django.po"
MARKS = {"_", "gettext", "gettext_lazy"}
PYTHON_ROOMS = ("accounts", "billing", "relay", "platform")


def texts_of_python(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS:
            (text,) = node.args
            assert isinstance(text, ast.Constant), f"{path}: a text to translate must stand there literally"
            yield text.value


def texts_of_template(path: Path) -> Iterator[str]:
    for quoted in re.findall(
        r"gettext\(u?('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\)", templatize(path.read_text())
    ):
        yield ast.literal_eval(quoted)
    assert "ngettext(" not in templatize(path.read_text())


@cache
def texts_of_the_sources() -> dict[str, str]:
    found = {}
    for room in PYTHON_ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if "migrations" not in path.parts:
                found.update(dict.fromkeys(texts_of_python(path), str(path)))
    for path in sorted((ROOT / "templates").rglob("*.html")):
        found.update(dict.fromkeys(texts_of_template(path), str(path)))
    return found


def test_every_text_is_in_the_catalogue_and_nothing_else():
    texts = texts_of_the_sources()
    known = {entry.msgid for entry in polib.pofile(str(CATALOGUE)) if not entry.obsolete}

    assert {text: where for text, where in texts.items() if text not in known} == {}
    assert known - texts.keys() == set()


def test_every_text_is_translated():
    catalogue = polib.pofile(str(CATALOGUE))

    assert [entry.msgid for entry in catalogue if not entry.translated()] == []
    assert [entry.msgid for entry in catalogue if "fuzzy" in entry.flags] == []


def test_placeholders_survive_translation():
    for entry in polib.pofile(str(CATALOGUE)):
        marks = re.compile(r"%\(\w+\)s|%[sd]")
        assert sorted(marks.findall(entry.msgid)) == sorted(marks.findall(entry.msgstr)), entry.msgid


def test_the_compiled_catalogue_is_current():
    compiled = {entry.msgid: entry.msgstr for entry in polib.mofile(str(CATALOGUE.with_suffix(".mo")))}

    assert compiled == {entry.msgid: entry.msgstr for entry in polib.pofile(str(CATALOGUE))}


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/", "/calls/", "/keys/", "/keys/new/", "/money/", "/organizations/"])
def test_a_page_in_chinese_has_no_english_text_of_ours(cast, signed_in, path):
    made = cast.call()
    with override("zh-hans"):
        english = {text for text in texts_of_the_sources() if gettext(text) != text and "%" not in text}

    for address in (path, f"/calls/{made.id}/"):
        page = signed_in("ann").get(address, headers={"Accept-Language": "zh-CN"})
        assert page.headers["Content-Language"] == "zh-hans"
        shown = re.sub(r"\s+", " ", page.content.decode())
        assert [text for text in english if f">{text}<" in shown] == []


@pytest.mark.django_db
def test_the_reader_can_switch_the_language(cast, signed_in):
    browser = signed_in("ann")

    response = browser.post("/language/setlang/", {"language": "zh-hans", "next": "/keys/"})

    assert response["Location"] == "/keys/"
    assert "密钥" in browser.get("/keys/").content.decode()


def test_times_and_figures_do_not_depend_on_the_language():
    from console.templatetags.console_format import count, plain_duration

    with override("zh-hans"):
        assert (count(1234567), plain_duration(1840).replace("\u202f", " ")) == ("1,234,567", "1.84 s")
