"""A halt has one reason, and everybody learns of it."""

import threading

import pytest

from gepa_client.errors import Interrupted
from gepa_client.transport.cancel_token import Halt

FIRST = Interrupted("paused", "stopped by hand")
SECOND = Interrupted("completed", "too late")


def test_it_is_nothing_until_it_is_pulled_and_then_keeps_its_first_reason() -> None:
    halt = Halt()
    halt.check()
    assert halt.reason is None
    halt.pull(FIRST)
    halt.pull(SECOND)
    assert halt.reason is FIRST
    for _ in range(2):
        with pytest.raises(Interrupted, match="paused: stopped by hand"):
            halt.check()


def test_every_listener_is_called_once_and_a_late_one_at_once() -> None:
    halt = Halt()
    told: list[tuple[str, Interrupted]] = []
    halt.listen(lambda reason: told.append(("early", reason)))
    halt.pull(FIRST)
    halt.pull(SECOND)
    halt.listen(lambda reason: told.append(("late", reason)))
    assert told == [("early", FIRST), ("late", FIRST)]


def test_many_threads_that_pull_at_once_agree_on_one_reason() -> None:
    halt = Halt()
    told: list[Interrupted] = []
    halt.listen(told.append)
    together = threading.Barrier(8, timeout=5)

    def pull(number: int) -> None:
        together.wait()
        halt.pull(Interrupted("paused", str(number)))

    threads = [threading.Thread(target=pull, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert told == [halt.reason]
