"""When which bytes go out."""

from collections.abc import Iterator

import pytest

from practice.directives import parse_directives
from practice.forms.form import Event, EventKind
from practice.script import Act, Pace, Step, play_stream, play_whole
from practice.wire import BodyWriter, Framing, Head

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
FAILURE = Event(EventKind.FINISH, b"failure")
PACE = Pace(first_s=0.5, gap_s=0.1)


def make_events(contents: int = 3) -> Iterator[Event]:
    yield Event(EventKind.OPEN, b"role")
    for number in range(contents):
        yield Event(EventKind.CONTENT, b"c%d" % number)
    yield Event(EventKind.FINISH, b"finish")
    yield Event(EventKind.USAGE, b"usage")
    yield Event(EventKind.DONE, b"[DONE]")


def play(
    text: str = "", contents: int = 3, framing: Framing = Framing.CHUNKED, keep: bool = True
) -> list[Step]:
    directives = parse_directives(f"@practice {text}@")
    writer = BodyWriter(Head(keep_alive=keep), framing, piece_bytes=directives.pieces, gzip=directives.gzip)
    return list(play_stream(make_events(contents), FAILURE, writer, directives, PACE))


def tell(steps: list[Step]) -> list[tuple[float, str]]:
    """Each step as (time from the start, what it carries), without framing and empty waits."""
    told, now = [], 0.0
    for step in steps:
        now = round(now + step.delay_s, 6)
        said = step.data.decode(errors="replace")
        if step.data.startswith(b"HTTP/1.1"):
            said = "head"
        elif said == "0\r\n\r\n":
            said = "end"
        elif "\r\n" in said:
            said = said.split("\r\n", 1)[1].removesuffix("\r\n").removeprefix("data: ").strip()
        if step.act is not Act.WRITE:
            said += f"<{step.act.value}>"
        if said:
            told.append((now, said))
    return told


ROLE = [(0, "head"), (0, "role")]
C0, C1, C2 = (0.5, "c0"), (0.6, "c1"), (0.7, "c2")
FIRST = (0.5, "<first>")
WHOLE = [*ROLE, FIRST, C0, C1, C2, (0.7, "finish"), (0.7, "usage"), (0.7, "[DONE]"), (0.7, "end")]


def test_a_stream_opens_at_once_waits_for_prefill_and_keeps_its_pace() -> None:
    assert tell(play()) == WHOLE


def test_a_stream_without_contents_still_waits_for_prefill() -> None:
    assert tell(play(contents=0))[2:5] == [FIRST, (0.5, "finish"), (0.5, "usage")]


def test_the_connection_ends_where_the_client_or_the_framing_asks_for_it() -> None:
    assert tell(play(keep=False)) == [*WHOLE, (0.7, "<close>")]
    assert play(framing=Framing.CLOSE)[-1].act is Act.CLOSE
    assert play(framing=Framing.SHORT)[-1].act is Act.CLOSE


def test_headers_may_wait_and_the_first_token_then_waits_less() -> None:
    assert tell(play("headers_delay_ms=200"))[:4] == [(0.2, "head"), (0.2, "role"), FIRST, C0]
    assert tell(play("headers_delay_ms=900"))[:4] == [
        (0.9, "head"),
        (0.9, "role"),
        (0.9, "<first>"),
        (0.9, "c0"),
    ]


def test_a_stall_before_the_first_token_comes_on_top() -> None:
    assert tell(play("stall_before_ms=1000"))[:5] == [*ROLE, (1.5, "<first>"), (1.5, "c0"), (1.6, "c1")]


def test_a_stall_comes_once_after_so_many_chunks() -> None:
    assert tell(play("stall_after=2,stall_ms=3000"))[3:7] == [C0, C1, (3.7, "c2"), (3.7, "finish")]
    assert tell(play("stall_after=2"))[5] == (1.7, "c2")
    assert tell(play("stall_after=0,stall_ms=3000"))[:4] == [*ROLE, (3.5, "<first>"), (3.5, "c0")]
    assert tell(play("stall_after=3,stall_ms=3000"))[5:8] == [C2, (3.7, "finish"), (3.7, "usage")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cut_after=0", [*ROLE, (0.5, "<close>")]),
        ("role_only", [*ROLE, (0.5, "<close>")]),
        ("cut_after=2", [*ROLE, FIRST, C0, C1, (0.7, "<close>")]),
        ("cut_after=3", [*ROLE, FIRST, C0, C1, C2, (0.7, "<close>")]),
        ("cut_after=2,cut=reset", [*ROLE, FIRST, C0, C1, (0.7, "<reset>")]),
        ("end_after=0", [*ROLE, (0.5, "end")]),
        ("end_after=1", [*ROLE, FIRST, C0, (0.6, "end")]),
        ("error_event", [*ROLE, (0.5, "failure"), (0.5, "end")]),
        ("error_event=1", [*ROLE, FIRST, C0, (0.6, "failure"), (0.6, "end")]),
        ("done=none", [*WHOLE[:-2], (0.7, "end")]),
        ("close=before", [(0, "<close>")]),
        ("close=before,headers_delay_ms=300", [(0.3, "<close>")]),
    ],
)
def test_a_stream_breaks_where_asked(text: str, told: list[tuple[float, str]]) -> None:
    assert tell(play(text)) == told


def test_a_cut_may_fall_into_an_event() -> None:
    steps = play("cut_after=1,cut_half")
    assert steps[-2].data == b"5\r\ndata:\r\n"
    assert steps[-1].act is Act.CLOSE


def test_garbage_takes_the_place_of_one_event() -> None:
    steps = play("garbage=1")
    bad = next(step.data for step in steps if b"\xff\xfe" in step.data)
    assert b"data: {" in bad
    assert bad.endswith(b"\n\n\r\n")
    told = [said for _, said in tell(steps)]
    assert "c1" not in told
    assert told[-4:] == ["finish", "usage", "[DONE]", "end"]


def test_a_bad_chunk_size_comes_after_the_first_content() -> None:
    steps = play(framing=Framing.BAD_CHUNK)
    assert (steps[-1].data, steps[-1].act) == (b"zz\r\n", Act.CLOSE)
    assert b"c0" in steps[-2].data


def test_comments_come_between_events_and_while_waiting() -> None:
    told = tell(play("comments"))
    assert told[:6] == [(0, "head"), (0, ": keep-alive"), (0, "role"), (0, ": keep-alive"), FIRST, C0]
    assert sum(said == ": keep-alive" for _, said in told) == 7
    told = tell(play("comments=200"))
    assert told[3:8] == [(0, ": keep-alive"), (0.2, ": keep-alive"), (0.4, ": keep-alive"), FIRST, C0]


def test_line_ends_are_as_asked() -> None:
    assert any(b"data: c0\r\n\r\n" in step.data for step in play("crlf"))
    assert any(b"data: c0\r\r" in step.data for step in play("cr"))


def test_pieces_are_steps_of_their_own_with_time_between_them() -> None:
    told = tell(play("pieces=3,piece_gap_ms=10"))
    assert told[:5] == [(0, "head"), (0, "dat"), (0.01, "a:"), (0.02, "rol"), (0.03, "e")]


# Plain bodies


def play_plain(text: str = "", body: bytes = b"0123456789", first_s: float | None = 0.5) -> list[Step]:
    directives = parse_directives(f"@practice {text}@")
    framing = Framing.CHUNKED if directives.comments is not None else Framing.LENGTH
    writer = BodyWriter(Head(), framing, length=len(body), piece_bytes=directives.pieces)
    return list(play_whole(body, writer, directives, first_s=first_s, rest_s=1.0 if first_s else 0.0))


def tell_plain(steps: list[Step]) -> list[tuple[float, str]]:
    return [(at, said.removesuffix("<write>")) for at, said in tell(steps)]


def test_a_plain_answer_comes_whole_when_it_is_ready() -> None:
    assert tell_plain(play_plain()) == [(0.5, "<first>"), (1.5, "head"), (1.5, "0123456789")]


def test_a_body_without_a_model_comes_at_once() -> None:
    assert tell_plain(play_plain(first_s=None)) == [(0, "head"), (0, "0123456789")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("headers_delay_ms=2000", [(2.0, "head"), (2.0, "0123456789")]),
        ("headers_delay_ms=100", [(1.5, "head"), (1.5, "0123456789")]),
        ("stall_before_ms=500", [(1.5, "head"), (2.0, "0123456789")]),
        ("stall_after=7,stall_ms=500", [(1.5, "head"), (1.5, "01234"), (2.0, "56789")]),
        ("cut_after=7", [(1.5, "head"), (1.5, "01234"), (1.5, "<close>")]),
        ("cut_after=7,cut=reset", [(1.5, "head"), (1.5, "01234"), (1.5, "<reset>")]),
        ("pieces=4", [(1.5, "head"), (1.5, "0123"), (1.5, "4567"), (1.5, "89")]),
    ],
)
def test_a_plain_answer_does_as_asked(text: str, told: list[tuple[float, str]]) -> None:
    assert tell_plain(play_plain(text)) == [(0.5, "<first>"), *told]


def test_a_plain_answer_may_go_unanswered() -> None:
    assert tell_plain(play_plain("close=before")) == [(0, "<close>")]


def test_a_slow_body_drips_in_twenty_pieces() -> None:
    told = tell_plain(play_plain("slow_body_ms=2000", body=b"x" * 100))
    assert told[:4] == [(0.5, "<first>"), (1.5, "head"), (1.6, "xxxxx"), (1.7, "xxxxx")]
    assert told[-1] == (3.5, "xxxxx")
    assert len(told) == 22


def test_a_slow_body_may_be_shorter_than_its_pieces() -> None:
    told = tell_plain(play_plain("slow_body_ms=2000", body=b"abc"))
    assert "".join(said for _, said in told[2:]) == "abc"


def test_a_held_plain_answer_sends_blank_lines() -> None:
    steps = play_plain("comments=400")
    assert steps[0].data.startswith(b"HTTP/1.1 200")
    assert [step.data for step in steps if step.data == b"1\r\n\n\r\n"] == [b"1\r\n\n\r\n"] * 3
    assert b"".join(step.data for step in steps).endswith(b"1\r\n\n\r\na\r\n0123456789\r\n0\r\n\r\n")
    assert round(sum(step.delay_s for step in steps), 6) == 1.5
    assert all(step.delay_s >= 0 for step in steps)


def test_an_empty_body_is_a_head() -> None:
    assert tell_plain(play_plain(body=b"")) == [(0.5, "<first>"), (1.5, "head")]


def test_the_pace_is_the_models_unless_a_directive_sets_it() -> None:
    assert Pace.choose(0.3, 20, parse_directives("")) == Pace(0.3, 0.02)
    assert Pace.choose(0.3, 20, parse_directives("@practice ttft_ms=50,gap_ms=0@")) == Pace(0.05, 0.0)
