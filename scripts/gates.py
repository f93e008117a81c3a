"""Run every gate, saying what each took; the first that fails stops, with the command to repeat it alone.

All but the last run two at a time, the longest first, each shown when it has ended.

`python scripts/gates.py` runs all; `python scripts/gates.py types "python tests"` runs those named.
"""

import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TS = "clients/typescript"
WORKERS = str(max(3, os.cpu_count() or 1))
"""Tests at once: they wait for processes more than they compute."""


@dataclass(frozen=True)
class Gate:
    """One check: a name, a command, and the folder it runs in, relative to the repository."""

    name: str
    command: tuple[str, ...]
    folder: str = "."


def tool(name: str) -> str:
    """A program of the environment this runs in."""
    return str(BIN / name)


def npm(script: str, *args: str) -> tuple[str, ...]:
    """One of the TypeScript package's own scripts."""
    return ("npm", "run", "--silent", script, *(("--", *args) if args else ()))


GATES = (
    Gate("wheel", (tool("python"), "scripts/wheel_check.py")),
    Gate("types", (tool("mypy"),)),
    Gate("typescript tests", npm("test"), TS),
    Gate("format", (tool("ruff"), "format", "--check", ".")),
    Gate("lint", (tool("ruff"), "check", ".")),
    Gate("words", (tool("python"), "scripts/words.py")),
    Gate("imports", (tool("lint-imports"), "--no-cache")),
    Gate("worker runs on Python 3.8", (tool("vermin"), "-t=3.8-", "--violations", "--no-tips", "rpc_server/worker")),
    Gate("schema drift", (tool("python"), "-m", "protocol", "--check")),
    Gate("typescript format", npm("format:check"), TS),
    Gate("typescript lint", npm("lint"), TS),
    Gate("typescript types", npm("typecheck"), TS),
    Gate("typescript drift", npm("generate", "--check"), TS),
    Gate("typescript package", npm("pack-check"), TS),
    Gate("python tests", (tool("python"), "-m", "pytest", "-n", WORKERS, "--dist", "worksteal")),
)


def main(names: list[str]) -> int:
    """Run the gates named (all when none is); returns the exit status."""
    unknown = [name for name in names if name not in {gate.name for gate in GATES}]
    if unknown:
        print(f"no gate {unknown[0]!r}; there are: {', '.join(gate.name for gate in GATES)}", file=sys.stderr)
        return 2
    started = time.monotonic()
    *first, last = [gate for gate in GATES if not names or gate.name in names]
    with ThreadPoolExecutor(2) as lanes:
        running = [lanes.submit(run, gate, shown=False) for gate in first]
        for gate, result in zip(first, running, strict=True):
            if not passed(gate, result.result()):
                lanes.shutdown(cancel_futures=True)
                return 1
    if not passed(last, run(last, shown=True)):
        return 1
    print(f"All gates passed in {time.monotonic() - started:.0f} s. Next: make demo", flush=True)
    return 0


@dataclass(frozen=True)
class Ran:
    """How a gate ended, after so many seconds; `output`: what it said, where that was not shown."""

    status: int
    seconds: float
    output: bytes


def run(gate: Gate, *, shown: bool) -> Ran:
    """Run it; `shown`: what it says is shown as it comes."""
    began = time.monotonic()
    if shown:
        print(f"== {gate.name}", flush=True)
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(  # noqa: S603  the commands are the table's
        gate.command,
        cwd=ROOT / gate.folder,
        env=environment,
        stdout=None if shown else subprocess.PIPE,
        stderr=None if shown else subprocess.STDOUT,
        check=False,
    )
    return Ran(done.returncode, time.monotonic() - began, done.stdout or b"")


def passed(gate: Gate, ran: Ran) -> bool:
    """Show how it ended; whether that was well."""
    if ran.output:
        print(f"== {gate.name}\n{ran.output.decode('utf-8', 'replace').rstrip()}", flush=True)
    if ran.status != 0:
        print(f"== {gate.name} failed; again alone: (cd {gate.folder} && {shlex.join(gate.command)})", file=sys.stderr)
        return False
    print(f"== {gate.name}: {ran.seconds:.1f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
