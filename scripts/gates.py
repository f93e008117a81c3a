"""Run every gate in turn, saying what each took; the first that fails stops, with the command to repeat it alone.

`python scripts/gates.py` runs all; `python scripts/gates.py types "python tests"` runs those named.
"""

import os
import shlex
import subprocess
import sys
import time
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
    Gate("format", (tool("ruff"), "format", "--check", ".")),
    Gate("lint", (tool("ruff"), "check", ".")),
    Gate("types", (tool("mypy"),)),
    Gate(
        "types of scripts",
        (tool("mypy"), "scripts", "benchmarks", "examples/tickets/demo.py", "examples/tickets/demo_sandbox.py"),
    ),
    Gate("imports", (tool("lint-imports"), "--no-cache")),
    Gate("worker runs on Python 3.8", (tool("vermin"), "-t=3.8-", "--violations", "--no-tips", "rpc_server/worker")),
    Gate("schema drift", (tool("python"), "-m", "protocol", "--check")),
    Gate("typescript format", npm("format:check"), TS),
    Gate("typescript lint", npm("lint"), TS),
    Gate("typescript types", npm("typecheck"), TS),
    Gate("typescript drift", npm("generate", "--check"), TS),
    Gate("typescript tests", npm("test"), TS),
    Gate("typescript package", npm("pack-check"), TS),
    Gate("wheel", (tool("python"), "scripts/wheel_check.py")),
    Gate("python tests", (tool("python"), "-m", "pytest", "-n", WORKERS, "--dist", "worksteal")),
)


def main(names: list[str]) -> int:
    """Run the gates named (all when none is); returns the exit status."""
    unknown = [name for name in names if name not in {gate.name for gate in GATES}]
    if unknown:
        print(f"no gate {unknown[0]!r}; there are: {', '.join(gate.name for gate in GATES)}", file=sys.stderr)
        return 2
    started = time.monotonic()
    for gate in GATES:
        if names and gate.name not in names:
            continue
        began = time.monotonic()
        print(f"== {gate.name}", flush=True)
        environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
        status = subprocess.run(gate.command, cwd=ROOT / gate.folder, env=environment, check=False).returncode  # noqa: S603  the commands are the table's
        if status != 0:
            print(
                f"== {gate.name} failed; again alone: (cd {gate.folder} && {shlex.join(gate.command)})", file=sys.stderr
            )
            return 1
        print(f"== {gate.name}: {time.monotonic() - began:.1f} s", flush=True)
    print(f"All gates passed in {time.monotonic() - started:.0f} s. Next: make demo", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
