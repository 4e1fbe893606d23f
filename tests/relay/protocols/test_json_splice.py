"""Members found and edited in place, against Python's own parser."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.protocols.json_splice import (
    NOWHERE,
    DuplicateMember,
    delete_edit,
    find_member,
    insert_first_edit,
    span_of,
    splice,
)


def joined(body: bytes, *edits: tuple[int, int, bytes]) -> bytes:
    return b"".join(splice(body, edits))


def found(body: bytes, name: str = "model") -> bytes | None:
    """The bytes of the member's value."""
    member = find_member(body, name)
    return None if member is None else body[member[1] : member[2]]


def test_it_works() -> None:
    body = b'{ "stream" : true,\n "model" : "alias" , "n": 1}'
    member = find_member(body, "model")
    assert member is not None
    assert joined(body, (member[1], member[2], b'"up"')) == b'{ "stream" : true,\n "model" : "up" , "n": 1}'


@pytest.mark.parametrize(
    "value",
    ['"x"', '""', '"\\""', '"\\\\"', '"}]{["', "1", "-1.5e-7", "true", "null", "[]", "{}", '[{"a": "]"}, []]',
     '{"model": {"model": "y"}}', '"\\ud83d\\ude00"', '"驿站"'],
)  # fmt: skip
@pytest.mark.parametrize("form", ['{"model":%s}', '{"a":1, "model" : %s ,"b":2}', '\t{\r\n"model":\n%s\n}\n'])
def test_a_value_of_any_kind_is_found_whole(form: str, value: str) -> None:
    assert found((form % value).encode()) == value.encode()


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"a":"model"}',
        b'{"a":{"model":1}}',
        b'{"a":[{"model":1}]}',
        b'{"models":1,"odel":2,"xmodel":3}',
        rb'{"\"model":1}',
        rb'{"a":"\"model\":1"}',
        rb'{"a":"\\\"model\": 1"}',
        rb'{"model\\":1}',
        b'{"Model":1}',
        b'["model"]',
    ],
)
def test_what_only_looks_like_the_member_is_passed_over(body: bytes) -> None:
    assert found(body) is None


def test_the_top_level_one_is_found_among_others() -> None:
    body = rb'{"a":{"model":1},"b":"\"model\":2","c":[{"model":3}],"model":4,"d":{"model":5}}'
    assert found(body) == b"4"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":1,"model":2}',
        b'{"model":1,"model":1}',
        b'{"model":{"a":1},"b":{"model":3},"model":2}',
        rb'{"model":1,"\u006dodel":2}',
        rb'{"\u006Dodel":1,"model":2}',
        rb'{"mode\u006c":1,"m\u006fdel":2}',
    ],
)
def test_a_member_that_stands_twice_is_refused(body: bytes) -> None:
    with pytest.raises(DuplicateMember, match="model"):
        find_member(body, "model")


@pytest.mark.parametrize("name", [rb"\u006dodel", rb"mod\u0065l", rb"\u006D\u006F\u0064\u0065\u006C"])
def test_a_name_with_escapes_is_the_same_name(name: bytes) -> None:
    body = b'{"a":{"model":1},"' + name + b'" : "x"}'
    assert found(body) == b'"x"'
    assert json.loads(body)["model"] == "x"


def test_a_name_with_an_underscore_may_be_escaped_too() -> None:
    assert found(rb'{"task\u005fid":"x"}', "task_id") == b'"x"'


def test_a_deep_document_is_no_matter() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert found(b'{"messages":' + deep + b',"model":"x"}') == b'"x"'
    assert found(b'{"model":"x","messages":' + deep + b"}") == b'"x"'


@pytest.mark.parametrize("places", ["before", "behind", "around"])
def test_many_nested_namesakes_cost_no_more_than_the_size(places: str) -> None:
    nested = b'"a":[' + b",".join([b'{"model":1}'] * 50_000) + b"]"
    body = {
        "before": b"{" + nested + b',"model":"x"}',
        "behind": b'{"model":"x",' + nested + b"}",
        "around": b"{" + nested + b',"model":"x","b":{' + nested + b"}}",
    }[places]
    assert found(body) == b'"x"'


def test_insertion_puts_a_member_in_front() -> None:
    body = b'  { "a":1}'
    assert joined(body, insert_first_edit(body, b'"b":2')) == b'  {"b":2, "a":1}'


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (b'{"x":1}', b"{}"),
        (b'{"x":1,"a":2}', b'{"a":2}'),
        (b'{"a":2,"x":1}', b'{"a":2}'),
        (b'{"a":2, "x" : [1,2] , "b":3}', b'{"a":2, "b":3}'),
        (b'{"a":2 ,\n "x":1\n}', b'{"a":2 \n}'),
        (b'{ "x":1 }', b"{ }"),
    ],
)
def test_deletion_takes_a_comma_along(body: bytes, left: bytes) -> None:
    member = find_member(body, "x")
    assert member is not None
    assert joined(body, delete_edit(body, member)) == left


def test_pieces_share_the_memory_of_the_body() -> None:
    body = bytearray(b'{"model":"a","messages":[]}')
    pieces = splice(body, [(9, 12, b'"b"')])
    assert all(piece.obj is body for piece in pieces if isinstance(piece, memoryview))
    assert splice(body, [])[0] is body


def test_edits_may_come_in_any_order() -> None:
    assert joined(b"abcdef", (5, 6, b"!"), (0, 1, b""), (2, 2, b"++")) == b"b++cde!"


NAMES = st.sampled_from(
    ["model", "task_id", "a", 'mo"del', "model\\", "модель", "", "stream_options", "Model"]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(['"model":1', '\\"model\\":', "model", '{"model":"x"}', "\\"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
SPACE = st.text(" \t\r\n", max_size=2)


@st.composite
def documents(draw: st.DrawFn) -> tuple[list[tuple[str, Any]], bytes]:
    """Members in order, possibly twice, and a spelling of the document with escapes and white space."""
    members = draw(st.lists(st.tuples(NAMES, VALUES), max_size=5))
    parts = []
    for name, value in members:
        spelled = json.dumps(name, ensure_ascii=draw(st.booleans()))
        if draw(st.booleans()):
            at = draw(st.integers(0, max(0, len(name) - 1)))
            if name and name[at].isascii() and name[at].isalnum():
                rest = json.dumps(name[at + 1 :], ensure_ascii=False)[1:]
                spelled = json.dumps(name[:at], ensure_ascii=False)[:-1] + f"\\u{ord(name[at]):04x}" + rest
        separators = draw(st.sampled_from([(",", ":"), (", ", " : ")]))
        text = json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators)
        parts.append(f"{draw(SPACE)}{spelled}{draw(SPACE)}:{draw(SPACE)}{text}{draw(SPACE)}")
    return members, f"{draw(SPACE)}{{{','.join(parts) or draw(SPACE)}}}{draw(SPACE)}".encode(
        "utf-8", "surrogatepass"
    )


@given(documents(), st.sampled_from(["model", "task_id", "stream_options"]))
def test_find_member_agrees_with_a_parser(document: tuple[list[tuple[str, Any]], bytes], name: str) -> None:
    members, body = document
    values = [value for key, value in members if key == name]
    if len(values) > 1:
        with pytest.raises(DuplicateMember):
            find_member(body, name)
        return
    member = find_member(body, name)
    if not values:
        assert member is None
        return
    assert member is not None
    assert json.loads(body[member[1] : member[2]]) == values[0]
    assert json.loads(body[member[0] : member[2]].decode().join("{}")) == {name: values[0]}


@given(documents(), st.sampled_from(["model", "task_id"]), st.sampled_from([b'"up"', b"{}", b"null"]))
def test_a_replaced_value_leaves_all_other_bytes_alone(
    document: tuple[list[tuple[str, Any]], bytes], name: str, value: bytes
) -> None:
    members, body = document
    if [key for key, _ in members].count(name) != 1:
        return
    member = find_member(body, name)
    assert member is not None
    edited = joined(body, (member[1], member[2], value))
    assert edited[: member[1]] == body[: member[1]]
    assert edited.endswith(body[member[2] :])
    assert len(edited) == len(body) - (member[2] - member[1]) + len(value)
    before, after = (json.loads(text, object_pairs_hook=list) for text in (body, edited))
    put = json.loads(value, object_pairs_hook=list)
    assert after == [(key, put if key == name else old) for key, old in before]


@given(documents(), st.sampled_from(["model", "task_id"]))
def test_a_deleted_member_leaves_a_document_without_it(
    document: tuple[list[tuple[str, Any]], bytes], name: str
) -> None:
    members, body = document
    if [key for key, _ in members].count(name) != 1:
        return
    member = find_member(body, name)
    assert member is not None
    left = json.loads(joined(body, delete_edit(body, member)), object_pairs_hook=tuple)
    assert [key for key, _ in left] == [key for key, _ in members if key != name]


@given(documents())
def test_an_inserted_member_stands_first(document: tuple[list[tuple[str, Any]], bytes]) -> None:
    members, body = document
    if not members:
        return
    edited = json.loads(joined(body, insert_first_edit(body, b'"new":[1]')), object_pairs_hook=tuple)
    assert [key for key, _ in edited] == ["new", *(key for key, _ in members)]


BULK = b'[{"role":"user","content":"say \\"model\\": 1"},{"model":2,"mod\\u0065l":3}]'


@pytest.mark.parametrize(
    ("head", "tail", "stands"),
    [
        (b'{"model":"a","messages":', b"}", 1),
        (b'{"messages":', b',"model":"a"}', 1),
        (b'{"model":"a","messages":', b',"model":"b"}', 2),
        (b'{"model":"a","messages":', b',"mod\\u0065l":"b"}', 2),
        (b'{"x":{"model":1},"messages":', b',"model":"a"}', 1),
        (b'{"messages":', b',"messages":[],"model":"a"}', 1),
        (b'{"x":{"messages":' + BULK + b'},"messages":', b',"model":"a","model":"b"}', 2),
        (b'{"x":"\\"messages\\":[","model":"a","messages":', b',"model":"b"}', 2),
    ],
)
def test_what_is_left_out_hides_no_member(head: bytes, tail: bytes, stands: int) -> None:
    body = head + BULK + tail
    value = memoryview(msgspec.json.decode(body, type=dict[str, msgspec.Raw])["messages"])
    span = span_of(body, "messages", value)
    if stands > 1:
        with pytest.raises(DuplicateMember):
            find_member(body, "model", span)
    else:
        assert find_member(body, "model", span) == find_member(body, "model")


def test_the_bulk_of_a_usual_body_is_found() -> None:
    body = b'{"model":"a","messages":' + BULK + b"}"
    start, end = span_of(body, "messages", BULK)
    assert body[start:end] == BULK
    assert span_of(body, "input", BULK) == NOWHERE


@given(documents(), st.sampled_from(["model", "x", "messages"]))
def test_leaving_out_any_value_changes_no_answer(
    document: tuple[list[tuple[str, Any]], bytes], name: str
) -> None:
    _, body = document
    try:
        body.decode()
    except UnicodeDecodeError:
        return  # not what the decoder lets through
    for key, raw in msgspec.json.decode(body, type=dict[str, msgspec.Raw]).items():
        if bytes(memoryview(raw)[:1]) not in (b"[", b"{") or key == name or not key.isascii():
            continue
        span = span_of(body, key, memoryview(raw))
        assert answer_of(body, name, span) == answer_of(body, name)


def answer_of(body: bytes, name: str, span: tuple[int, int] = NOWHERE) -> object:
    try:
        return find_member(body, name, span)
    except DuplicateMember:
        return "twice"
