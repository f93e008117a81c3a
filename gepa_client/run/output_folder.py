"""The folder a run writes into: every file complete or absent, none of its names taken from a server."""

import json
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evolverpc_common.atomic_files import replace_file

BEST_CANDIDATE = "best_candidate.json"
RESULT = "result.json"
CONFIG = "config.json"
EVENTS = "events.jsonl"
LOG = "run.log"
REPORT = "report.md"
REPORT_PAGE = "report.html"
RUNS = Path("runs")
OWN = 0o700


LONGEST_NAME = 60
"""Characters of a name that go into the id."""


def create(path: Path) -> Path:
    """Make the folder; returns its absolute path.

    Raises:
        FileExistsError: it is there and holds something: a run never writes over another's results.
        OSError: it cannot be made.
    """
    found = open_again(path)
    refuse_results(found)
    return found


def open_again(path: Path) -> Path:
    """Make the folder where it is not there, for its owner alone, as rows are in it; returns its absolute path."""
    path.mkdir(mode=OWN, parents=True, exist_ok=True)
    return path.resolve()


def open_new(run_id: str) -> Path:
    """Make the folder of a run that has none yet: `runs/RUN`, or a numbered one where a run of another store is there.

    Returns its absolute path.
    """
    names = (run_id, *(f"{run_id}-{number}" for number in range(2, 10_000)))
    return open_again(next(path for name in names if not _used(path := RUNS / name)))


def _used(path: Path) -> bool:
    """Whether a run was driven there; one that was refused leaves its log alone."""
    return any((path / name).exists() for name in (CONFIG, EVENTS, RESULT, BEST_CANDIDATE))


def refuse_results(path: Path) -> None:
    """Raise FileExistsError where the folder is there and holds something."""
    if path.exists() and any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty; results of another run are never written over")


def create_default(run_id: str) -> Path:
    """Make the folder `runs/RUN`; returns its absolute path."""
    path = RUNS / run_id
    path.mkdir(mode=OWN, parents=True)
    return path.resolve()


def write_json(path: Path, value: Any, default: Callable[[object], Any] | None = None) -> None:
    """Write JSON as a complete file; keys keep their order. `default`: as of `json.dumps`."""
    replace_file(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False, default=default) + "\n")


def new_run_id(name: str | None = None) -> str:
    """`20250131-235959-1f3a`, with `-NAME` after it; in a name all but letters, digits, - and _ becomes -."""
    part = slug(name)
    # os randomness: GEPA's runs depend on the global generator
    own = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    return f"{own}-{part}" if part else own


def slug(name: str | None) -> str:
    """`name` as part of a path; empty where there is none."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name or "").strip("-")[:LONGEST_NAME]
