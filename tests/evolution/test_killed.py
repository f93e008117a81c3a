"""Killed in the middle of a mutation: nothing is left behind, and the run goes on as if nothing had happened."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_runtime import Endpoint
from tests.evolution.conftest import MARK, World

SOON_S = 30.0


def until(found: Callable[[], Any], what: str) -> Any:
    """What `found` gives as soon as it gives something."""
    end = time.monotonic() + SOON_S
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {SOON_S:g} s")


def processes(here: World, *words: str) -> list[int]:
    """Processes of this world's server, its programs and agents, whose command line has these words."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
            command = (entry / "cmdline").read_bytes().decode(errors="replace") if environment else ""
        except OSError:
            continue
        if f"{MARK}={here.mark}".encode() in environment.split(b"\0") and all(word in command for word in words):
            found.append(int(entry.name))
    return found


def working_agents(here: World) -> list[int]:
    return processes(here, "_bundled/claude")


def result_of(here: World) -> dict[str, Any]:
    """What the run found, its commits by the files they hold: ids differ with the run's name."""
    result = json.loads((here.folder / "run" / "result.json").read_text())
    commits = [candidate["git_branch"].rpartition("@")[2] for candidate in result["candidates"]]
    return {
        "trees": [here.git("rev-parse", f"{commit}^{{tree}}") for commit in commits],
        "scores": result["val_aggregate_scores"],
        "parents": result["parents"],
        "metric_calls": result["total_metric_calls"],
    }


def left_behind(here: World) -> list[str]:
    """Branches that no candidate has, locks, and folders of servers that are gone."""
    result = json.loads((here.folder / "run" / "result.json").read_text())
    known = {candidate["git_branch"].partition("@")[0] for candidate in result["candidates"]}
    branches = here.git("branch", "--list", "evolve/*", "--format", "%(refname:short)").split()
    locks = [str(path) for path in (here.repository / ".git").rglob("*.lock")]
    return [*(branch for branch in branches if branch not in known), *locks]


@pytest.mark.timeout(400)
def test_a_run_whose_mutation_was_killed_ends_as_an_undisturbed_one(world: Callable[..., World]) -> None:
    calm = world("python", short=True)
    with calm.serving() as endpoint:
        calm.optimize(endpoint)
    for victim in ("optimizer", "server", "agent"):
        here = world("python", short=True)
        disturb(here, victim)
        assert result_of(here) == result_of(calm), victim
        assert left_behind(here) == [], victim
        until(lambda here=here: not processes(here), f"the end of every process, the {victim} having been killed")


def disturb(here: World, victim: str) -> None:
    """A run whose first mutation is killed, and which comes to its end all the same."""
    with here.serving() as endpoint:
        optimizer = start(here, endpoint)
        until(lambda: here.reflection.prompts and working_agents(here), "an agent at work")
        if victim == "agent":
            os.kill(working_agents(here)[0], signal.SIGKILL)
            assert optimizer.wait(120) == 0
            return
        os.kill(optimizer.pid if victim == "optimizer" else endpoint.pid, signal.SIGKILL)
        optimizer.kill()
        optimizer.wait(10)
    until(lambda: not processes(here), "the end of every process")
    with here.serving() as endpoint:
        here.client(endpoint, "resume", "last", endpoint.url, *here.reached_by)


def start(here: World, endpoint: Endpoint) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        here.command(*here.optimize_arguments(endpoint)),
        cwd=here.folder,
        env=here.environment(endpoint),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
