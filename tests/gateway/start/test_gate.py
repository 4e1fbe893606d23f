import os
import threading

from gateway.start.gate import Gate, wait_at


def waiting(gate: Gate) -> tuple[threading.Thread, list[bool]]:
    """Somebody who waits, at a descriptor of its own as a child has."""
    passed: list[bool] = []
    handle = os.dup(gate.handle)
    thread = threading.Thread(target=lambda: passed.append(wait_at(handle)))
    thread.start()
    return thread, passed


def test_all_who_wait_pass_once_it_is_open_and_so_does_who_comes_later():
    gate = Gate()
    early = [waiting(gate) for _ in range(3)]
    early[0][0].join(0.1)
    assert early[0][0].is_alive()
    gate.open()
    for thread, passed in (*early, waiting(gate)):
        thread.join(10)
        assert passed == [True]
    gate.close()


def test_who_waits_is_told_when_the_start_is_given_up():
    gate = Gate()
    thread, passed = waiting(gate)
    gate.close()
    thread.join(10)
    assert passed == [False]
