"""Arguments out, answers in, for one organization and turn."""

import asyncio

import pytest

from relay.admission.batch import Batch, CountersUnknown, HoldMissing, Operation
from relay.admission.limits import GRANTED, LevelLimits, LimitKind, Refused
from relay.admission.wire import StoreUnavailable

ORGANIZATION = LevelLimits("o", balance_nano=500)
KEY = LevelLimits("k1", rpm=60, concurrency=3)


def make_operation(letter: str, levels: tuple[LevelLimits, ...] | None = None) -> Operation:
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    arguments = {"p": (10, 60_000), "x": (5,), "s": (7,), "r": (60_000,), "a": (10, 60_000)}[letter]
    return Operation(letter, f"call-{letter}", arguments, levels, future)


async def test_operations_share_their_rows() -> None:
    operations = [
        make_operation("p", (ORGANIZATION, KEY)),
        make_operation("s"),
        make_operation("x", (ORGANIZATION,)),
    ]
    keys, arguments = Batch(7, operations).compose(None)
    assert keys == ["{org:7}:use", "{org:7}:holds", "{org:7}:due", "{org:7}:rpm:o", "{org:7}:rpm:k1"]
    assert arguments == [
        *("", 3, 2),
        *("call-p", "call-s", "call-x"),
        *("o", "k1"),
        *("500", "", "", ""),
        *("", "", "3", "60"),
        *("p", 10, 60_000, 2, 1, 2),
        *("s", 7),
        *("x", 5, 1, 1),
    ]
    assert all(operation.is_sent for operation in operations)


async def test_a_given_clock_is_passed_on() -> None:
    assert Batch(7, [make_operation("s")]).compose(123)[1][0] == 123


async def test_each_operation_hears_its_answer() -> None:
    permit, refused = make_operation("p", (ORGANIZATION, KEY)), make_operation("x", (ORGANIZATION, KEY))
    settled, nothing, silent = make_operation("s"), make_operation("r"), make_operation("s")
    silent.future.cancel()
    batch = Batch(7, [permit, refused, settled, nothing, silent])
    batch.compose(None)
    batch.deliver([1, [0, 2, 4, b"", 2500], 1, 0, 1])
    assert await permit.future == GRANTED
    assert await refused.future == Refused("k1", LimitKind.RPM, left_nano=None, limit=60, reset_s=2.5)
    assert (await settled.future, await nothing.future) == (True, False)


@pytest.mark.parametrize(
    ("letter", "answer", "error"),
    [
        ("p", -1, CountersUnknown),
        ("s", -1, CountersUnknown),
        ("x", 0, HoldMissing),
        ("s", [0, 1, 1, b"5", b""], StoreUnavailable),
        ("p", [0, 2, 1, b"5", b""], StoreUnavailable),
        ("p", [0, 1, 9, b"5", b""], StoreUnavailable),
        ("p", [0, 1, 2, b"5", b""], StoreUnavailable),
        ("p", [0, 1, 1, b"five", b""], StoreUnavailable),
        ("p", b"OK", StoreUnavailable),
        ("p", None, StoreUnavailable),
    ],
)
async def test_what_is_no_outcome_is_an_error(letter: str, answer: object, error: type[Exception]) -> None:
    operation = make_operation(letter, (ORGANIZATION,))
    batch = Batch(7, [operation])
    batch.compose(None)
    batch.deliver([answer])
    with pytest.raises(error):
        await operation.future


@pytest.mark.parametrize("answer", [[], [1, 1, 1], b"OK", None])
async def test_a_wrong_number_of_answers_is_a_failure_of_all(answer: object) -> None:
    operations = [make_operation("s"), make_operation("r")]
    Batch(7, operations).deliver(answer)
    for operation in operations:
        with pytest.raises(StoreUnavailable, match="wrong number"):
            await operation.future


async def test_those_who_left_are_not_told() -> None:
    answered, failed = make_operation("s"), make_operation("s")
    answered.future.cancel()
    failed.future.cancel()
    Batch(7, [answered]).deliver([1])
    Batch(7, [failed]).fail("away")
    assert answered.future.cancelled()
    assert failed.future.cancelled()


async def test_only_leave_that_nobody_waits_for_is_moot() -> None:
    permit, settle = make_operation("p", (ORGANIZATION,)), make_operation("s")
    assert not permit.is_moot
    permit.future.cancel()
    settle.future.cancel()
    assert permit.is_moot
    assert not settle.is_moot
