"""The cases of tests/cases: faults that users of other gateways reported, each with its right answer.

Those that need what is not offered yet are named with the reason by `not_offered`; every other one is run.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.cases.harness.case_file import Case, all_cases, not_offered
from tests.cases.harness.running import CaseRun
from tests.fakes.practice_process import PracticeProcess
from tests.fakes.relay_process import RelayProcess
from tests.wire.world import Tenant, World

CASES = all_cases()
REACHED = [case for case in CASES if not_offered(case) is None]


def test_all_files_are_there_and_each_is_run_or_has_its_reason() -> None:
    assert len(CASES) >= 110
    reasons = Counter(not_offered(case) for case in CASES)
    assert reasons.pop(None) == len(REACHED) >= 18
    assert all(reason and reason.endswith("not offered yet") for reason in reasons)


def test_every_chat_case_on_a_chat_upstream_is_run_but_for_what_is_named() -> None:
    chat = [case for case in CASES if case.client == "openai-chat" and case.protocols == {"openai"}]
    left_out = {case.id: not_offered(case) for case in chat if case not in REACHED}
    assert left_out == {
        "usage-audio-tokens-at-their-own-price": "a price for audio_input is not offered yet",
    }


@pytest.fixture(scope="module")
def bystander(relay: RelayProcess, practice: PracticeProcess, django_db_blocker) -> Iterator[Tenant]:
    """Another key, model and upstream, which still work after each case."""
    with django_db_blocker.unblock():
        world = World(relay)
        yield world.tenant(practice.url)
        world.close()


@pytest.mark.parametrize("case", REACHED, ids=lambda case: case.id)
def test_case(world: World, bystander: Tenant, case: Case) -> None:
    assert CaseRun(case, world, bystander).run() == []


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("status", 201),
        ("text", "Hallo"),
        ("finish", "length"),
        ("ends_with", "error"),
        ("amount", "0.00008"),
        ("record", {"output_tokens": 6}),
        ("headers", {"x-call-id": {"$absent": True}}),
        ("events", [{"data": {"/choices/0/delta/content": "no"}}]),
        ("no_events", [{"raw": "[DONE]"}]),
        ("count_events", [[{"raw": "[DONE]"}, 2]]),
        ("tool_calls", [{"name": "f", "arguments": {}}]),
        ("usage", {"/prompt_tokens": 11}),
        ("upstream_calls", 1),
        ("upstream_requests", [{"upstream": 1}, {"upstream": 0}]),
        ("never_to_client", ["Hel"]),
        ("never_upstream", ["messages"]),
        ("no_record", True),
    ],
)
def test_a_wrong_expectation_is_noticed(world: World, bystander: Tenant, name: str, wrong: object) -> None:
    case = next(case for case in REACHED if case.id == "failover-error-as-first-event")
    (problem,) = CaseRun(replace(case, expect={"status": 200, name: wrong}), world, bystander).run()[:1]
    assert problem
