"""A program that starts the command reads the events from a descriptor, beside the display."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gepa_client.conftest import TIMEOUT_S, Cli, Ran, Serve, command, environment
from tests.gepa_client.word_program import Script

Read = Callable[..., tuple[Ran, list[dict[str, Any]]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Runs a command; returns how it ended, and the lines of its descriptor. `to_end`: False closes it at once."""

    def run(*arguments: object, to_end: bool = True) -> tuple[Ran, list[dict[str, Any]]]:
        ours, theirs = os.pipe()
        words = command(*arguments, "--events-fd", theirs)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(words, cwd=tmp_path, env=environment(), pass_fds=[theirs], text=True, **pipes)
        os.close(theirs)
        with os.fdopen(ours) as stream:
            lines = list(stream) if to_end else []
        stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        return Ran(process.returncode, stdout, stderr), [json.loads(line) for line in lines]

    return run


def test_events_and_summary_are_written_to_the_descriptor_beside_the_display(
    serve: Serve, words: Script, read: Read, cli: Cli
) -> None:
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


@pytest.mark.long
def test_messages_name_the_options_of_typescript(serve: Serve, words: Script, read: Read) -> None:
    ran, _ = read("optimize", serve(words))
    assert "give maxMetricCalls N (or auto light|medium|heavy, maxFullEvals" in " ".join(ran.stderr.split())
    assert "--" not in ran.stderr
