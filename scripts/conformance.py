"""Runs the conformance cases against the three servers this project ships; ends with `N passed, 0 failed`.

`python scripts/conformance.py [NAME ...]`, names as in `SERVERS`. The TypeScript package must have been built.
"""

import asyncio
import shutil
import sys
from pathlib import Path

from gepa_client.conformance import CheckOutcome, Report, Verdict, run_conformance
from sandbox_runtime import Endpoint, ServerFailed, running_server

ROOT = Path(__file__).resolve().parent.parent
NODE_PROGRAM = str(ROOT / "clients" / "typescript" / "dist" / "bin" / "conformance.js")
GEPA_SERVER = str(Path(sys.executable).with_name("gepa-server"))

# A deadline short enough to wait for, and long enough for the checks that run examples of a few seconds.
LIMITS = ["--example-timeout-s", "4"]

SERVERS = {
    "python": [GEPA_SERVER, "--conformance", *LIMITS],
    "gepa-server-node": [GEPA_SERVER, *LIMITS, "--command", "node", NODE_PROGRAM, "--stdio"],
    "typescript": ["node", NODE_PROGRAM, *LIMITS],
}


def missing(name: str) -> str | None:
    """What this server needs and this machine does not have; None where it can be started."""
    if "node" in SERVERS[name]:
        if shutil.which("node") is None:
            return "node is not installed"
        if not Path(NODE_PROGRAM).is_file():
            return "the TypeScript package has not been built: make setup"
    return None


def _told(outcome: CheckOutcome) -> None:
    if outcome.verdict in (Verdict.FAILED, Verdict.WARNED):
        print(f"  {outcome.verdict.value}: {outcome.check.id}: {outcome.check.title}\n    {outcome.reason}", flush=True)


def _run(name: str, endpoint: Endpoint) -> Report:
    print(f"{name}: {' '.join(SERVERS[name])}", flush=True)
    report = asyncio.run(run_conformance(endpoint.url, endpoint.token, on_outcome=_told))
    print(
        f"  {report.endpoint}: {report.last_line},"
        f" {report.count(Verdict.WARNED)} warned, {report.count(Verdict.SKIPPED)} do not apply",
        flush=True,
    )
    return report


def main(names: list[str]) -> int:
    """Run the servers named, all of them when none is; returns the exit status."""
    chosen = names or list(SERVERS)
    unknown = [name for name in chosen if name not in SERVERS]
    impossible = unknown or [f"{name}: {missing(name)}" for name in chosen if missing(name)]
    if impossible:
        print("\n".join(impossible), f"(there are: {', '.join(SERVERS)})", file=sys.stderr)
        return 2
    reports = []
    for name in chosen:
        try:
            with running_server(SERVERS[name], cwd=ROOT) as endpoint:
                reports.append(_run(name, endpoint))
        except ServerFailed as error:
            print(error, file=sys.stderr)
            return 2
    passed, failed = (sum(report.count(verdict) for report in reports) for verdict in (Verdict.PASSED, Verdict.FAILED))
    print(f"{passed} passed, {failed} failed")
    return 0 if all(report.conforms for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
