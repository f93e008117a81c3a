"""Use a store from another process: `python -m tests.gepa_client.journal.store_process JOB STORE ...`."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import IO

from gepa_client.errors import StoreUnavailable
from gepa_client.journal import open_store
from gepa_client.journal.entries import SEARCH, Row
from gepa_client.journal.lease import LeaseHeartbeat, take
from tests.gepa_client.journal.sample_runs import OWNER, driven, ended, entry, sent

ROOT = Path(__file__).parents[3]


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start a job; its messages are the lines of its stdout."""
    command = [sys.executable, "-m", "tests.gepa_client.journal.store_process", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(stream: IO[str] | None) -> str:
    """Return the next message of a job."""
    assert stream is not None
    return stream.readline().strip()


def write(url: str, run_id: str, batches: int) -> None:
    """Write a run of its own."""
    store = open_store(url)
    driven(store, run_id)
    for number in range(batches):
        store.write(run_id, OWNER, [sent(number), ended(number), entry(number)])
        store.beat(run_id, OWNER, {"counters": {"iteration": number}})
    store.close()


def drive(url: str, run_id: str, lease_s: float) -> None:
    """Drive a run until stdin ends; print what happens to it."""
    store = open_store(url)
    take(store, run_id, owner="process", driver="another process", lease_s=lease_s, on_wait=lambda *_: None)
    with LeaseHeartbeat(store, run_id, "process", lease_s, dict, report, lambda error: report(type(error).__name__)):
        report("driving")
        sys.stdin.read()


def fill(path: str, run_id: str, limit: int) -> None:
    """Write where no file may grow beyond `limit` bytes; then where it may, the same again."""
    store = open_store(path)
    driven(store, run_id)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    noise = os.urandom(limit)  # no compression helps
    rows: list[Row] = [sent(0), entry(0), entry(1, noise)]
    try:
        store.write(run_id, OWNER, rows)
    except StoreUnavailable as error:
        report(str(error))
    report(str(len(store.entries(run_id, SEARCH))))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.write(run_id, OWNER, rows)
    report(str(len(store.entries(run_id, SEARCH))))


def report(message: str) -> None:
    print(message, flush=True)


if __name__ == "__main__":
    job, store_url, which, number = sys.argv[1:]
    if job == "write":
        write(store_url, which, int(number))
    elif job == "drive":
        drive(store_url, which, float(number))
    else:
        fill(store_url, which, int(number))
