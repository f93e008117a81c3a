"""The runs that the page's server reads are bounded in number, but for those that a page follows."""

import asyncio
import threading
import time
from pathlib import Path

from gepa_client.page.watched_runs import MOST_RUNS, WatchedRuns
from tests.gepa_client.page.browsing import TIMEOUT_S
from tests.gepa_client.stored_run import Made, put


def readers() -> set[str]:
    """The runs that are being read in this process."""
    names = (thread.name for thread in threading.enumerate())
    return {name.removeprefix("reader of ") for name in names if name.startswith("reader of ")}


def left_after(expected: set[str]) -> set[str]:
    """Wait until these runs and no others are read; return those that are."""
    until = time.monotonic() + TIMEOUT_S
    while readers() != expected and time.monotonic() < until:
        time.sleep(0.01)
    return readers()


async def test_the_run_that_no_page_has_followed_for_longest_is_read_no_longer(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    put(store, Made())
    runs = WatchedRuns(store, replays=False)
    ids = [f"run-{number}" for number in range(MOST_RUNS + 2)]
    stop = runs.get(ids[0]).log.listen(asyncio.Event())
    for run_id in ids[1:]:
        runs.get(run_id)
    assert ids[1] not in runs
    kept = {ids[0], *ids[2:]}
    assert await asyncio.to_thread(left_after, kept) == kept
    log = runs.get(ids[2]).log
    stop()
    runs.get("another")
    assert ids[0] not in runs
    assert runs.get(ids[2]).log is log
    await asyncio.to_thread(runs.close)
    assert await asyncio.to_thread(left_after, set()) == set()
