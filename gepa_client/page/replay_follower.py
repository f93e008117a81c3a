"""Starts the process that replays a run while it is recorded, and hands over the events that it reports."""

import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import IO

from pydantic import ValidationError

from gepa_client.journal.entries import StoredRun
from gepa_client.journal.run_events import Event, from_json
from gepa_client.run.control_messages import DriverJob
from gepa_client.settings.loading import from_record

END_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Decided:
    """An event of the replay, and how many numbers GEPA had requested by then. `error`: why there will be no more."""

    at: int
    event: Event | None = None
    error: str | None = None


class ReplayFollower:
    """The process, from its start until `close`. `url`: of the run's store.

    Raises:
        SettingsError: the recorded settings cannot be used.
    """

    def __init__(self, url: str, run: StoredRun) -> None:
        recorded = {key: value for key, value in run.config.items() if key != "output"}
        config = from_record(recorded, {}, calls=False)
        job = DriverJob(
            store=url,
            run_id=run.id,
            owner="",
            config=config.model_dump(mode="json", exclude_unset=True),
            output=None,
            replays=True,
        )
        hash_seed = (run.identity or {}).get("hash_seed") or "0"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gepa_client.page.replay_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            start_new_session=True,
        )
        self._found: queue.SimpleQueue[Decided | None] = queue.SimpleQueue()
        self.ended = False
        self._write(job)
        threading.Thread(target=self._read, args=(self._process.stdout,), name="replay", daemon=True).start()

    def next(self) -> Decided | None:
        """Return the next event, None if there is none at present; if `ended` is true then, there will be no more."""
        try:
            found = self._found.get_nowait()
        except queue.Empty:
            return None
        if found is None:
            self.ended = True
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(END_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _write(self, job: DriverJob) -> None:
        assert self._process.stdin is not None, "a pipe"  # noqa: S101
        try:
            self._process.stdin.write(job.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which its output shows

    def _read(self, lines: IO[bytes]) -> None:
        last: Decided | None = None
        try:
            for line in lines:
                last = _decided(line)
                self._found.put(last)
        except ValueError:
            pass  # closed
        if last is None or (last.error is None and (last.event is None or last.event.event != "finished")):
            self._found.put(Decided(at=0 if last is None else last.at, error="the replay ended early"))
        self._found.put(None)


def _decided(line: bytes) -> Decided:
    try:
        read = json.loads(line)
        if "error" in read:
            return Decided(at=int(read["at"]), error=str(read["error"]))
        return Decided(at=int(read["at"]), event=from_json(json.dumps(read["event"])))
    except (ValueError, KeyError, ValidationError) as error:
        return Decided(at=0, error=f"the replay reported what is no event: {error}")
