"""Runs the conformance cases against the servers this project ships; ends with `N passed, 0 failed`.

`python scripts/conformance.py [NAME ...]`, names as in `SERVERS`. The TypeScript package must be built.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gepa_client.conformance import CheckOutcome, ConformanceReport, Verdict, run_conformance
from rpc_server.cli import conformance_program
from sandbox_runtime import ServerEndpoint, ServerFailed, running_server

ROOT = Path(__file__).resolve().parent.parent
NODE_PROGRAM = str(ROOT / "clients" / "typescript" / "dist" / "bin" / "conformance.js")
GEPA_SERVER = str(Path(sys.executable).with_name("gepa-server"))

SERVERS = {
    "python": [GEPA_SERVER, "--conformance"],
    "gepa-server-node": [GEPA_SERVER, "--conformance", "--command", "node", NODE_PROGRAM, "--stdio"],
    "typescript": ["node", NODE_PROGRAM],
    "gepa-server-trees": [GEPA_SERVER, "--conformance", "--trees", "--program", "conformance.py"],
}

IN_A_REPOSITORY = "gepa-server-trees"
"""Runs in a git repository that holds the conformance program as `conformance.py`."""


@contextmanager
def running(name: str) -> Iterator[ServerEndpoint]:
    """Yield the server and end it after the block. Raises `ServerFailed`."""
    if name != IN_A_REPOSITORY:
        with running_server(SERVERS[name], cwd=ROOT) as endpoint:
            yield endpoint
        return
    with tempfile.TemporaryDirectory(prefix="gepa-conformance-") as folder:
        repository = Path(folder) / "repository"
        repository.mkdir()
        shutil.copyfile(ROOT / "rpc_server" / "cli" / "conformance_program.py", repository / "conformance.py")
        rows = [f"--datasets={split}={_rows(repository, split)}" for split in conformance_program.DATASETS]
        who = ("-c", "user.name=conformance", "-c", "user.email=conformance@localhost")
        for command in (("init", "--quiet"), ("add", "--all"), (*who, "commit", "--quiet", "--message", "seed")):
            subprocess.run(["git", *command], cwd=repository, check=True)  # noqa: S603, S607  # the user's git
        state = ["--tree-dir", str(Path(folder) / "trees"), "--python", sys.executable]
        with running_server([*SERVERS[name], *state, *rows], cwd=repository) as endpoint:
            yield endpoint


def _rows(folder: Path, split: str) -> str:
    """Return the name of a file with the conformance program's rows of the split; other servers hold their rows."""
    lines = [f"{json.dumps(row)}\n" for row in conformance_program.DATASETS[split]]
    (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return f"{split}.jsonl"


def missing(name: str) -> str | None:
    """Return what this server needs and this machine does not have; None where it can be started."""
    if "node" in SERVERS[name]:
        if shutil.which("node") is None:
            return "node is not installed"
        if not Path(NODE_PROGRAM).is_file():
            return "the TypeScript package has not been built: make setup"
    return None


def _print_outcome(outcome: CheckOutcome) -> None:
    if outcome.verdict in (Verdict.FAILED, Verdict.WARNED, Verdict.NOT_VERIFIED):
        print(f"  {outcome.verdict.value}: {outcome.check.id}: {outcome.check.title}\n    {outcome.reason}", flush=True)


def _run(name: str) -> ConformanceReport:
    """Check a server. Raises `ServerFailed`."""
    print(f"{name}: {' '.join(SERVERS[name])}", flush=True)
    with running(name) as endpoint:
        report = asyncio.run(run_conformance(endpoint.url, endpoint.token, on_outcome=_print_outcome))
    print(
        f"  {report.described}: {report.counts}, {report.count(Verdict.WARNED)} warned,"
        f" {report.count(Verdict.SKIPPED)} do not apply\n  {report.last_line}",
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
            reports.append(_run(name))
        except ServerFailed as error:
            print(error, file=sys.stderr)
            return 2
    passed, failed = (sum(report.count(verdict) for report in reports) for verdict in (Verdict.PASSED, Verdict.FAILED))
    print(f"{passed} passed, {failed} failed")
    return 0 if all(report.conforms for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
