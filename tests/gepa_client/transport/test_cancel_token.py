"""A cancellation token keeps its first reason and passes it to every listener."""

import threading

import pytest

from gepa_client.errors import Interrupted
from gepa_client.transport.event_loop import CancelToken

FIRST = Interrupted("paused", "stopped by hand")
SECOND = Interrupted("completed", "too late")


def test_it_is_nothing_until_it_is_pulled_and_then_keeps_its_first_reason() -> None:
    cancel_token = CancelToken()
    cancel_token.check()
    assert cancel_token.reason is None
    cancel_token.cancel(FIRST)
    cancel_token.cancel(SECOND)
    assert cancel_token.reason is FIRST
    for _ in range(2):
        with pytest.raises(Interrupted, match="paused: stopped by hand"):
            cancel_token.check()


def test_every_listener_is_called_once_and_a_late_one_at_once() -> None:
    cancel_token = CancelToken()
    received: list[tuple[str, Interrupted]] = []
    cancel_token.add_listener(lambda reason: received.append(("early", reason)))
    cancel_token.cancel(FIRST)
    cancel_token.cancel(SECOND)
    cancel_token.add_listener(lambda reason: received.append(("late", reason)))
    assert received == [("early", FIRST), ("late", FIRST)]


def test_many_threads_that_pull_at_once_agree_on_one_reason() -> None:
    cancel_token = CancelToken()
    received: list[Interrupted] = []
    cancel_token.add_listener(received.append)
    together = threading.Barrier(8, timeout=5)

    def pull(number: int) -> None:
        together.wait()
        cancel_token.cancel(Interrupted("paused", str(number)))

    threads = [threading.Thread(target=pull, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert received == [cancel_token.reason]
