"""Starts the tickets program in either language, and optimises it where it runs."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_runtime import ServerEndpoint, running_server

HERE = Path(__file__).resolve().parent
TYPESCRIPT = HERE / "typescript"
BIN = Path(sys.executable).parent


class NotSetUp(Exception):
    """Something the TypeScript program needs is missing; the message has what installs it."""


@dataclass(frozen=True)
class Run:
    """One optimization that has ended. `result`: the run's `result.json`.

    `seconds`: with its start and its report; `active_seconds`: as the run itself reports.
    """

    language: str
    folder: Path
    seconds: float
    active_seconds: float
    result: dict[str, Any]

    @property
    def scores(self) -> tuple[float, float]:
        """Seed and best on the rows held out."""
        tested = self.result["test_scores"]
        return tested["0"], tested[str(self.result["best_idx"])]

    @property
    def texts(self) -> tuple[dict[str, str], dict[str, str]]:
        """The seed candidate and the best one."""
        candidates = self.result["candidates"]
        return candidates[0], candidates[self.result["best_idx"]]

    @property
    def line(self) -> str:
        """`python: score 0.29 -> 0.68, 832 metric calls, 2.2 s`."""
        seed, best = self.scores
        calls = self.result["total_metric_calls"]
        return f"{self.language}: score {seed:.2f} -> {best:.2f}, {calls} metric calls, {self.active_seconds:.1f} s"


def build_typescript() -> None:
    """Install and compile the TypeScript program where that has not been done.

    Raises:
        NotSetUp: the package it is written with has not been built, or npm fails.
    """
    npm = shutil.which("npm")
    package = HERE.parents[1] / "clients" / "typescript" / "dist" / "index.js"
    if npm is None:
        raise NotSetUp("it needs Node 20 with npm (nodejs.org); then: make demo")
    if not package.is_file():
        raise NotSetUp("the TypeScript package could not be built; to see why: make setup")
    if not (TYPESCRIPT / "node_modules" / ".bin" / "tsc").exists():
        _npm(npm, "ci", "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=error")
    built = TYPESCRIPT / "dist" / "serve.js"
    if not built.is_file() or built.stat().st_mtime < max(path.stat().st_mtime for path in TYPESCRIPT.glob("*.ts")):
        _npm(npm, "run", "--silent", "build")


def _npm(npm: str, *arguments: str) -> None:
    command, quiet = [npm, *arguments], subprocess.DEVNULL if arguments[0] == "ci" else None  # errors go to stderr
    done = subprocess.run(command, cwd=TYPESCRIPT, stdout=quiet, check=False)  # noqa: S603  a fixed command
    if done.returncode != 0:
        raise NotSetUp(f"`npm {' '.join(arguments)}` failed in {TYPESCRIPT}")


@contextlib.contextmanager
def serving(language: str) -> Iterator[ServerEndpoint]:
    """A server of the program while the block runs: `evolverpc serve` in front of Python, Node by itself."""
    commands = {
        "python": [str(BIN / "gepa-server"), "--python", sys.executable],
        "typescript": ["node", "dist/serve.js"],
    }
    with running_server(commands[language], cwd=HERE / language) as endpoint:
        yield endpoint


def optimize(language: str, endpoint: ServerEndpoint, flags: Sequence[str], folder: Path | None = None) -> Run:
    """Run `evolverpc optimize`, which shows how it goes. `folder`: for its files, by default `runs/RUN`.

    Raises:
        subprocess.CalledProcessError: it failed, and has printed the reason.
    """
    return _run(language, [endpoint.url, *flags], {"GEPA_TOKEN": endpoint.token}, folder)


def optimize_in_sandboxes(count: int, flags: Sequence[str]) -> Run:
    """The same with the Python program in so many bubblewrap sandboxes. Raises as `optimize`."""
    sandboxes = ["--repo", str(HERE / "python"), "--sandbox", "bubblewrap", "--sandboxes", str(count)]
    return _run("sandboxes", [*sandboxes, *flags], {})


def _run(name: str, flags: Sequence[str], variables: Mapping[str, str], folder: Path | None = None) -> Run:
    output = [] if folder is None else ["--output", str(folder)]
    command = [str(BIN / "gepa-client"), "optimize", "--name", name, *output, *flags]
    started = time.monotonic()
    subprocess.run(command, env={**os.environ, **variables}, check=True)  # noqa: S603  ours
    seconds = time.monotonic() - started
    folder = folder or max(Path("runs").glob(f"*-{name}"))  # ids of runs sort by time
    events = map(json.loads, (folder / "events.jsonl").read_text(encoding="utf-8").splitlines())
    [active_seconds] = (event["active_seconds"] for event in events if event["event"] == "finished")
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return Run(name, folder, seconds, active_seconds, result)
