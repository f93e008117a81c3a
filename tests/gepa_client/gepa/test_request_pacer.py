"""Requests of many threads are spaced evenly, and no wait outlasts the run."""

import time
from concurrent.futures import ThreadPoolExecutor

from gepa_client.gepa.litellm_model import RequestPacer


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
