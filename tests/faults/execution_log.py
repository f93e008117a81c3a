"""Reads what the program noted of its executions, and waits for moments of a run by how many there are."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST_WAIT_S = 60.0


@dataclass(frozen=True)
class Execution:
    """An example that really ran. `at`: when it began, on the clock all processes of a machine share."""

    ran: str
    row: int
    candidate: str
    at: float


def executions(log: Path) -> list[Execution]:
    """Every example that ran, in the order noted."""
    return [
        Execution(line["ran"], line["row"], line["candidate"], line["at"])
        for line in lines(log)
        if line["what"] == "example"
    ]


def calls(log: Path, what: str) -> int:
    """How often the program made a `reflective_dataset` or a `proposal`."""
    return sum(line["what"] == what for line in lines(log))


def lines(log: Path) -> list[dict[str, Any]]:
    """Everything noted so far."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def noted(log: Path) -> int:
    """How many lines there are."""
    return log.read_bytes().count(b"\n") if log.exists() else 0


def until(wanted: Callable[[], bool], what: str, timeout_s: float = LONGEST_WAIT_S) -> None:
    """Wait for something to become true; looks every few milliseconds, and fails after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not wanted():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain for {what}"
        time.sleep(0.003)


def born(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; with its id it identifies the process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def children(pid: int) -> list[int]:
    """The processes a process started, by id."""
    found: list[int] = []
    for task in _tasks(pid):
        try:
            found += map(int, task.joinpath("children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def descendants(pid: int) -> list[int]:
    """The processes a process started, and those that they started."""
    found = children(pid)
    return found + [below for child in found for below in descendants(child)]


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []
