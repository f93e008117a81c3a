"""Killed in the middle of a mutation: nothing is left behind, and the resumed run has the same result."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandbox_runtime import ServerEndpoint
from tests.evolution.conftest import MARK, World
from tests.evolution.scenario import changes
from tests.support.waiting import until


def processes(here: World, *words: str) -> list[int]:
    """Processes of this world's server, its programs and agents, whose command line has these words."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
            sought = command != "" and all(word in command for word in words)
            environment = (entry / "environ").read_bytes() if sought else b""
        except OSError:
            continue
        if f"{MARK}={here.mark}".encode() in environment.split(b"\0"):
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


def trees_of_the_changes(here: World) -> list[str]:
    """The trees of the seed and after each change of an undisturbed run, made by hand in a clone."""
    clone = here.folder / "by-hand"
    here.git("clone", "--quiet", ".", str(clone))
    trees = [here.git("rev-parse", "HEAD^{tree}")]
    for change in changes("python", short=True):
        for name, old, new in change.edits:
            file = clone / name
            file.write_text(file.read_text().replace(old, new, 1))
        here.git("-C", str(clone), "add", "--all")
        trees.append(here.git("-C", str(clone), "write-tree"))
    return trees


def left_behind(here: World) -> list[str]:
    """Branches that no candidate has, locks, and folders of servers that are gone."""
    result = json.loads((here.folder / "run" / "result.json").read_text())
    known = {candidate["git_branch"].partition("@")[0] for candidate in result["candidates"]}
    branches = here.git("branch", "--list", "evolve/*", "--format", "%(refname:short)").split()
    locks = [str(path) for path in (here.repository / ".git").rglob("*.lock")]
    return [*(branch for branch in branches if branch not in known), *locks]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_run_whose_mutation_was_killed_three_times_ends_as_an_undisturbed_one(world: Callable[..., World]) -> None:
    here = world("python", short=True)
    with here.serving_as_a_user() as endpoint:
        with started(here, here.optimize_arguments(endpoint), endpoint):
            first = an_agent_at_work(here)
            os.kill(first, signal.SIGKILL)
            an_agent_at_work(here, after=first)
        until(lambda: not working_agents(here))
        with started(here, resuming(here, endpoint), endpoint):
            an_agent_at_work(here)
            os.kill(endpoint.pid, signal.SIGKILL)
    until(lambda: not processes(here))
    with here.serving_as_a_user() as endpoint:
        here.client(endpoint, *resuming(here, endpoint))

    assert result_of(here) == {
        "trees": trees_of_the_changes(here),
        "scores": [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0],
        "parents": [[None], [0], [1]],
        "metric_calls": 21,
    }
    assert left_behind(here) == []
    until(lambda: not processes(here))


def an_agent_at_work(here: World, after: int | None = None) -> int:
    """Its process, once there is one that is not `after`."""
    found = until(lambda: [pid for pid in working_agents(here) if pid != after])
    return int(found[0])


def resuming(here: World, endpoint: ServerEndpoint) -> list[object]:
    return ["resume", "last", endpoint.url, *here.reached_by]


@contextlib.contextmanager
def started(here: World, arguments: Sequence[object], endpoint: ServerEndpoint) -> Iterator[None]:
    """`evolverpc` with these arguments, killed at the end of the block."""
    with subprocess.Popen(
        here.command(*arguments),
        cwd=here.folder,
        env=here.environment(endpoint),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield
        finally:
            process.kill()
