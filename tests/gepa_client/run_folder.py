"""What a run of the command line leaves behind, and waiting for it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gepa_client.journal.store import Store, open_store


def only_run(folder: Path) -> Path:
    """The folder of the one run; the store lies beside it."""
    [run] = (path for path in (folder / "runs").iterdir() if path.is_dir())
    return run


def best_so_far(folder: Path) -> str:
    """The text of the best candidate that the run has written; empty while that is the seed, or nothing."""
    written = list(folder.glob("runs/*/best_candidate.json"))
    return str(json.loads(written[0].read_text())["rules"]) if written else ""


@contextmanager
def stored(folder: Path) -> Iterator[tuple[Store, str]]:
    """The store of the command line in `folder`, and the id of the one run in it."""
    store = open_store(str(folder / "runs" / "evolverpc.db"))
    try:
        [run] = store.runs()
        yield store, run.id
    finally:
        store.close()


def driver_of(folder: Path) -> int:
    """The process that drives the one run."""
    with stored(folder) as (store, run_id):
        driver = store.run(run_id).driver
    assert driver is not None
    return int(driver.split()[1])
