"""Requests of many threads are spaced evenly, and no wait outlasts the run."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gepa_client.errors import Interrupted
from gepa_client.gepa.litellm_model import RequestPacer
from gepa_client.transport.event_loop import CancelToken

BOUND_S = 20.0


def test_turns_of_several_threads_are_spaced_evenly_and_none_is_early():
    per_minute, turns = 3000, 12
    began = time.monotonic()
    pace = RequestPacer(per_minute)

    def take(_):
        pace.turn()
        return time.monotonic() - began

    with ThreadPoolExecutor(4) as threads:
        taken = sorted(threads.map(take, range(turns)))
    assert all(at >= number * 60 / per_minute for number, at in enumerate(taken))


def test_a_pace_that_was_idle_allows_no_burst_afterwards():
    pace = RequestPacer(per_minute=1200)
    pace.turn()
    time.sleep(0.15)  # three turns pass unused
    began = time.monotonic()
    for _ in range(3):
        pace.turn()
    assert time.monotonic() - began >= 2 * 0.05


def test_without_a_limit_no_request_waits():
    pace = RequestPacer()
    began = time.monotonic()
    for _ in range(1000):
        pace.turn()
    assert time.monotonic() - began < BOUND_S


@pytest.mark.parametrize("wait", [lambda pace: pace.turn(), lambda pace: pace.pause(3600)])
def test_a_cancellation_ends_every_wait_and_allows_no_further_turn(wait):
    cancel_token = CancelToken()
    pace = RequestPacer(per_minute=1, cancel_token=cancel_token)
    pace.turn()
    waiting = threading.Event()

    def wait_long():
        waiting.set()
        with pytest.raises(Interrupted) as caught:
            wait(pace)
        return caught.value.reason

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(wait_long)
        assert waiting.wait(BOUND_S)
        cancel_token.cancel(Interrupted("paused", "stopped by hand"))
        assert ended.result(BOUND_S) == "stopped by hand"
    with pytest.raises(Interrupted):
        pace.turn()
