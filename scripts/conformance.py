"""Runs the conformance cases against the three servers this project ships; ends with `N passed, 0 failed`.

`python scripts/conformance.py [NAME ...]`, names as in `SERVERS`. The TypeScript package must have been built.
"""

import asyncio
import json
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from gepa_client.conformance import CheckOutcome, Report, Verdict, run_conformance

ROOT = Path(__file__).resolve().parent.parent
NODE_PROGRAM = str(ROOT / "clients" / "typescript" / "dist" / "bin" / "conformance.js")
GEPA_SERVER = [str(Path(sys.executable).with_name("gepa-server"))]
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0

# A deadline short enough to wait for, and long enough for the checks that run examples of a few seconds.
LIMITS = ["--example-timeout-s", "4"]

# The rows of the conformance program. A program behind `gepa-server --command` holds none itself: the server does.
ROWS = {"train": [{"score": row / 10} for row in range(5)], "val": [{"score": row / 10} for row in range(3)]}
HELD = [flag for split in ROWS for flag in ("--datasets", f"{split}={{rows}}/{split}.json")]

SERVERS = {
    "python": [*GEPA_SERVER, "--conformance", "--json", *LIMITS],
    "gepa-server-node": [*GEPA_SERVER, "--json", *LIMITS, *HELD, "--command", "node", NODE_PROGRAM, "--stdio"],
    "typescript": ["node", NODE_PROGRAM, "--json", *LIMITS],
}


def missing(name: str) -> str | None:
    """What this server needs and this machine does not have; None where it can be started."""
    if "node" in SERVERS[name]:
        if shutil.which("node") is None:
            return "node is not installed"
        if not Path(NODE_PROGRAM).is_file():
            return "the TypeScript package has not been built"
    return None


@asynccontextmanager
async def serving(name: str) -> AsyncIterator[tuple[str, str]]:
    """The URL and token of a server started for the purpose, and ended with it.

    Raises:
        RuntimeError: it did not become ready.
    """
    with TemporaryDirectory(prefix="conformance-") as rows:
        for split, held in ROWS.items():
            (Path(rows) / f"{split}.json").write_text(json.dumps(held), encoding="utf-8")
        async with _started(name, [part.replace("{rows}", rows) for part in SERVERS[name]]) as ready:
            yield ready


@asynccontextmanager
async def _started(name: str, command: list[str]) -> AsyncIterator[tuple[str, str]]:
    token = secrets.token_urlsafe(24)
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**os.environ, "GEPA_TOKEN": token},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    reading: asyncio.Task[None] | None = None
    try:
        if process.stdout is None:
            raise RuntimeError("its stdout is not ours")
        async with asyncio.timeout(START_TIMEOUT_S):
            url = await _ready_url(name, process.stdout)
        reading = asyncio.create_task(_read_away(process.stdout))
        yield url, token
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if reading is not None:
            await reading


async def _ready_url(name: str, stdout: asyncio.StreamReader) -> str:
    async for line in stdout:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "ready":
            return str(event["url"])
    raise RuntimeError(f"{name} ended before it was ready")


async def _read_away(stdout: asyncio.StreamReader) -> None:
    while await stdout.read(65536):
        pass


def _told(outcome: CheckOutcome) -> None:
    if outcome.verdict in (Verdict.FAILED, Verdict.WARNED):
        print(f"  {outcome.verdict.value}: {outcome.check.id}: {outcome.check.title}\n    {outcome.reason}", flush=True)


async def _run(name: str) -> Report:
    async with serving(name) as (url, token):
        print(f"{name}: {' '.join(SERVERS[name])}", flush=True)
        report = await run_conformance(url, token, on_outcome=_told)
    print(
        f"  {report.endpoint}: {report.last_line},"
        f" {report.count(Verdict.WARNED)} warned, {report.count(Verdict.SKIPPED)} do not apply",
        flush=True,
    )
    return report


def main(names: list[str]) -> int:
    """Run the servers named, all of them when none is; returns the exit status."""
    chosen = names or list(SERVERS)
    impossible = [f"{name}: {missing(name)}" for name in chosen if missing(name)]
    if impossible:
        print("\n".join(impossible), file=sys.stderr)
        return 2
    try:
        reports = [asyncio.run(_run(name)) for name in chosen]
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    passed, failed = (sum(report.count(verdict) for report in reports) for verdict in (Verdict.PASSED, Verdict.FAILED))
    print(f"{passed} passed, {failed} failed")
    return 0 if all(report.conforms for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
