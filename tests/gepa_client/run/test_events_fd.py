"""A program that starts the command reads the events from a descriptor, beside the display."""

import json
import os
from pathlib import Path
from typing import Any

from tests.gepa_client.conftest import TIMEOUT_S, Cli, Ran, Serve, environment
from tests.gepa_client.started_command import StartedCommand
from tests.gepa_client.word_program import Script
from tests.support.forked_client import ForkServer


def test_events_and_summary_are_written_to_the_descriptor_beside_the_display(
    serve: Serve, words: Script, cli: Cli, tmp_path: Path, fork_server: ForkServer
) -> None:
    def read(*arguments: object) -> tuple[Ran, list[dict[str, Any]]]:
        """Run a command; return how it ended, and the lines of its descriptor."""
        ours, theirs = os.pipe()
        given = [*map(str, arguments), "--events-fd", "3"]
        process = StartedCommand(fork_server, given, folder=tmp_path, environment=environment(), further=[theirs])
        os.close(theirs)
        with os.fdopen(ours) as stream:
            lines = [json.loads(line) for line in stream]
        stdout, stderr = process.communicate(TIMEOUT_S)
        assert process.returncode is not None
        return Ran(process.returncode, stdout, stderr), lines

    ran, events = read("optimize", serve(words), "--max-metric-calls", 60, "--check", "off")
    assert (ran.status, events[0]["event"], events[-2]["event"]) == (0, "phase", "finished")
    assert "score 0.00 ->" in ran.stdout
    summary = events[-1]
    assert (summary["event"], summary["status"]) == ("summary", "completed")
    again, (complete,) = read("resume", summary["run_id"])
    assert f"next: the program that started it, with `resume` {summary['run_id']}" in again.stdout
    assert (complete["output"], complete["status"]) == (summary["output"], "completed")
    typed = cli("resume", summary["run_id"])
    assert typed.status == 2
    assert f"continue it with the program that started it, with `resume` {summary['run_id']}, or" in typed.stderr
