"""Call ids are UUIDv7s of now that sort by their time."""

import time
import uuid

from billing.records import created_at_of
from relay.call_id import new_call_id


def test_it_works() -> None:
    before = time.time()
    call_id = new_call_id()
    parsed = uuid.UUID(call_id)
    assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, call_id)
    assert before - 0.001 <= created_at_of(call_id).timestamp() <= time.time()


def test_ids_differ_and_later_ones_sort_behind() -> None:
    early = [new_call_id() for _ in range(1000)]
    moment = time.time() + 0.002
    while time.time() < moment:
        pass
    late = [new_call_id() for _ in range(1000)]
    assert len({*early, *late}) == 2000
    assert max(early) < min(late)


def test_all_of_the_random_bits_vary() -> None:
    seen_set = seen_clear = 0
    for _ in range(400):
        bits = uuid.UUID(new_call_id()).int & ((1 << 80) - 1)
        seen_set |= bits
        seen_clear |= ~bits
    fixed = (0xF << 76) | (0b11 << 62)
    free = ((1 << 80) - 1) & ~fixed
    assert seen_set & free == free
    assert seen_clear & free == free
