"""Run every gate and print the time each took; the first that fails ends the run, with the command to repeat it alone.

It ends with the processor time of all of them.

Three lanes run side by side: the Python tests, the tests in TypeScript, and all other gates. A lane runs its gates one
after the other; all but the Python tests show their output when they end.

`python scripts/gates.py` runs all; `python scripts/gates.py types "python tests"` runs those named.
"""

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TS = "clients/typescript"
DASHBOARD = "clients/dashboard"
SERVICE_CLIENT = "clients/service-typescript"
WORKERS = str(3 * (os.cpu_count() or 1))
"""Python tests at once: they wait for processes more than they compute."""
POLL_S = 0.2
ORPHANS_S = 5.0
"""Seconds that what the gates leave running has to end, as the server that forks commands for the tests."""

PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Gate:
    """One check: a name, a command, and the folder it runs in, relative to the repository."""

    name: str
    command: tuple[str, ...]
    folder: str = "."


def tool(name: str) -> str:
    """Return a program of the environment this runs in."""
    return str(BIN / name)


def npm(script: str, *args: str) -> tuple[str, ...]:
    """One of the own scripts of the TypeScript package, or of the dashboard."""
    return ("npm", "run", "--silent", script, *(("--", *args) if args else ()))


PYTHON_TESTS = Gate("python tests", (tool("python"), "-m", "pytest", "--workers", WORKERS))
TYPESCRIPT_PACKAGE = Gate("typescript package", npm("pack-check"), TS)
TYPESCRIPT_TESTS = Gate("typescript tests", npm("test"), TS)
DASHBOARD_TESTS = Gate("dashboard tests", npm("test"), DASHBOARD)
WITH_PACKAGE = (PYTHON_TESTS, TYPESCRIPT_TESTS)
"""They use what the gate `typescript package` builds again, so they begin when it has ended."""
LANES = ((TYPESCRIPT_PACKAGE, PYTHON_TESTS), (DASHBOARD_TESTS, TYPESCRIPT_TESTS))
"""Gates that run beside the others, which are one lane."""
GATES = (
    Gate("format", (tool("ruff"), "format", "--check", ".")),
    Gate("lint", (tool("ruff"), "check", ".")),
    Gate("docs", (tool("python"), "scripts/site.py", "--without-diagrams")),
    Gate("words", (tool("python"), "scripts/words.py")),
    Gate("imports", (tool("lint-imports"), "--no-cache")),
    Gate("worker runs on Python 3.8", (tool("vermin"), "-t=3.8-", "--violations", "--no-tips", "rpc_server/worker")),
    Gate("settings drift", (tool("python"), "-m", "scripts.settings_reference", "--check")),
    Gate("service drift", (tool("python"), "-m", "gepa_service.api.openapi", "--check")),
    Gate("schema drift", (tool("python"), "-m", "protocol", "--check")),
    Gate("typescript format", npm("format:check"), TS),
    Gate("typescript lint", npm("lint"), TS),
    Gate("typescript types", npm("typecheck"), TS),
    Gate("typescript drift", npm("generate", "--check"), TS),
    Gate("dashboard format", npm("format:check"), DASHBOARD),
    Gate("dashboard lint", npm("lint"), DASHBOARD),
    Gate("dashboard types", npm("typecheck"), DASHBOARD),
    Gate("dashboard drift", npm("drift"), DASHBOARD),
    Gate("service client format", npm("format:check"), SERVICE_CLIENT),
    Gate("service client lint", npm("lint"), SERVICE_CLIENT),
    Gate("service client types", npm("typecheck"), SERVICE_CLIENT),
    Gate("types", (tool("mypy"),)),
    Gate("wheel", (tool("python"), "scripts/wheel_check.py")),
    TYPESCRIPT_TESTS,
    DASHBOARD_TESTS,
    Gate("service client tests", npm("test"), SERVICE_CLIENT),
    TYPESCRIPT_PACKAGE,
    PYTHON_TESTS,
)


def main(names: list[str]) -> int:
    """Run the gates named (all if none is); return the exit status."""
    unknown = [name for name in names if name not in {gate.name for gate in GATES}]
    if unknown:
        print(f"no gate {unknown[0]!r}; there are: {', '.join(gate.name for gate in GATES)}", file=sys.stderr)
        return 2
    started = time.monotonic()
    adopt_orphans()
    chosen = [gate for gate in GATES if not names or gate.name in names]
    beside = [[gate for gate in lane if gate in chosen] for lane in LANES]
    lanes = [*beside, [gate for gate in chosen if not any(gate in lane for lane in LANES)]]
    failed, built = threading.Event(), threading.Event()
    if TYPESCRIPT_PACKAGE not in chosen:
        built.set()
    with ThreadPoolExecutor(len(lanes)) as threads:
        list(threads.map(lambda lane: run_lane(lane, built, failed), lanes))
    figures = f"{time.monotonic() - started:.0f} s, {cpu_seconds():.0f} CPU seconds"
    if failed.is_set():
        print(f"A gate failed after {figures}.", flush=True)
        return 1
    print(f"All gates passed in {figures}. Next: make demo", flush=True)
    return 0


def adopt_orphans() -> None:
    """Become the parent of processes that outlive theirs, so that their processor time is counted; on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def cpu_seconds() -> float:
    """Return the processor time of this process and of all below it, once they have ended or `ORPHANS_S` are over."""
    deadline = time.monotonic() + ORPHANS_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(POLL_S)
    return sum(os.times()[:4])


def run_lane(gates: list[Gate], built: threading.Event, failed: threading.Event) -> None:
    """Run these gates one after the other; stop when one of them, or one of another lane, has failed.

    `built`: set when the gate `typescript package` has ended.
    """
    for gate in gates:
        while gate in WITH_PACKAGE and not built.wait(POLL_S):
            if failed.is_set():
                return
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            live = gate is PYTHON_TESTS
            if live:
                print(f"== {gate.name}", flush=True)
            status = run(gate, failed, None if live else output)
            if status is None:
                return
            output.seek(0)
            printed = output.read().decode("utf-8", "replace").rstrip()
        took = f"{time.monotonic() - began:.1f} s"
        print(f"\n== {gate.name}\n{printed}" if printed else "", f"== {gate.name}: {took}", sep="\n", flush=True)
        if status != 0:
            failed.set()
            again = f"again alone: (cd {gate.folder} && {shlex.join(gate.command)})"
            print(f"== {gate.name} failed; {again}", file=sys.stderr, flush=True)
            return
        if gate is TYPESCRIPT_PACKAGE:
            built.set()


def run(gate: Gate, stop: threading.Event, output: IO[bytes] | None) -> int | None:
    """Run a gate, its output into `output` or shown; return its exit status, None if `stop` was set before its end."""
    # Thousands of processes start during the tests: without stored byte code, each would compile what it imports.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(  # noqa: S603  the commands are the table's
        gate.command,
        cwd=ROOT / gate.folder,
        env={**environment, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"},
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
    )
    while not stop.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(POLL_S)
    process.send_signal(signal.SIGINT)
    process.wait()
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
