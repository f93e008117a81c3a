"""`make demo-service`: start the service, connect a repository, optimize it over HTTP, and promote the result.

Nothing leaves this machine: the repository is a folder, and the program proposes its own texts.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.backends.bubblewrap.prerequisites import bubblewrap

TICKETS = Path(__file__).resolve().parent.parent / "tickets"
COMMAND = (str(Path(sys.executable).with_name("evolverpc")), "service")
WAIT_S = 120.0
ANSWER_S = 30.0
BUDGET = 832
EVERY = 100
"""Metric calls between two lines of progress."""


class DemoFailed(Exception):
    """A step failed; the text has the reason."""


@dataclass
class Service:
    """A running service, called with the key of its owner."""

    url: str
    key: str
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=ANSWER_S, trust_env=False
        )

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer; print the request as people would type it."""
        print(f"  {method} {path}" + ("" if body is None else f" {_shortened(body)}"), flush=True)
        answer = self.http.request(method, path, json=body)
        if answer.is_error:
            raise DemoFailed(f"{method} {path}: {answer.json().get('detail', answer.text)}")
        found: dict[str, Any] = answer.json()
        return found

    def events(self, job_id: str) -> Iterator[dict[str, Any]]:
        """Yield the events of a job as they come, until its last one."""
        with self.http.stream("GET", f"/job/{job_id}/stream", timeout=WAIT_S) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))
                elif line == "event: end":
                    return


def main(flags: list[str]) -> int:
    """Run, and print what happened; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the service running, so that you can call it")
    parser.add_argument("--engine", default="local", help="where work runs, as --engine of evolverpc service up")
    asked = parser.parse_args(flags)
    with (
        tempfile.TemporaryDirectory(prefix="gepa-service-demo-") as folder,
        started(Path(folder), asked.engine) as service,
    ):
        print("\n== Connect a repository\n")
        repository = service.call("POST", "/connect-git", {"repo_url": str(repository_in(Path(folder) / "tickets"))})
        print("\n== Optimize it\n")
        request = {
            "client_id": repository["client_id"],
            "trainset_path": "data/train.jsonl",
            "valset_path": "data/val.jsonl",
            "testset_path": "data/test.jsonl",
            "max_metric_calls": BUDGET,
            "options": {"reflection_minibatch_size": 40, "candidate_selection_strategy": "current_best"},
        }
        began = time.monotonic()
        job_id = service.call("POST", "/optimize", request)["job_id"]
        job = followed(service, job_id, began)
        if job["status"] != "completed":
            raise DemoFailed(f"the job is {job['status']}: {job['reason'] or job['failure']}")
        print("\n== Look at the version, and promote it\n")
        version = service.call("GET", f"/program/{job['program_id']}")
        print(f"  score {version['seed_score']:.2f} -> {version['score']:.2f} on the validation rows")
        print(textwrap.fill(f"certificate: {certified(version)}", 78, initial_indent="  ", subsequent_indent="  "))
        service.call("POST", f"/program/{job['program_id']}/promote", {})
        [active] = service.call("GET", "/programs/active")["items"]
        print(f"  the active version is {active['program_id']}")
        end(service, keep=asked.keep)
    return 0


@contextlib.contextmanager
def started(folder: Path, engine: str) -> Iterator[Service]:
    """The service while the block runs, in this folder, with bubblewrap if it is there."""
    print("== Start the service\n", flush=True)
    sandbox, why = usable_backend()
    print(textwrap.fill(why, 78, initial_indent="  ", subsequent_indent="  "), flush=True)
    flags = ["--sandbox", sandbox, "--engine", engine]
    command = [*COMMAND, "up", "--data", str(folder / "data"), "--port", "0", *flags, "--json"]
    print(f"  evolverpc service up {' '.join(flags)}", flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  ours
        assert process.stdout is not None  # noqa: S101  a pipe
        try:
            line = process.stdout.readline()
            if not line:
                raise DemoFailed("the service did not start; the reason is above")
            ready = json.loads(line)
            yield Service(ready["url"], ready["key"])
        finally:
            process.terminate()
            process.wait()


def usable_backend() -> tuple[str, str]:
    """Return the backend of sandboxes that this machine has, and why it is taken."""
    try:
        bubblewrap(None)
    except RuntimeUnavailable as error:
        return "process", f"Backend process, which isolates nothing, as bubblewrap cannot be used: {error}"
    return "bubblewrap", "Backend bubblewrap, which is on this machine"


def repository_in(folder: Path) -> Path:
    """Make a git repository of the tickets program and its rows."""
    shutil.copytree(TICKETS / "python", folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(TICKETS / "data", folder / "data")
    identity = ["-c", "user.name=demo", "-c", "user.email=demo@example.org"]
    for words in (["init", "--quiet"], ["add", "--all"], [*identity, "commit", "--quiet", "--message", "Add tickets"]):
        subprocess.run(["git", *words], cwd=folder, check=True)  # noqa: S603, S607  fixed commands
    return folder


def followed(service: Service, job_id: str, began: float) -> dict[str, Any]:
    """Print progress from the stream of the job; return the job once it has ended."""
    first: float | None = None
    shown = -EVERY
    print(f"  GET /job/{job_id}/stream", flush=True)
    for event in service.events(job_id):
        if event.get("event") != "job":
            if first is None and is_scored(event):
                first = time.monotonic() - began
                print(f"  the first example was scored {first:.1f} s after POST /optimize", flush=True)
            continue
        progress = event["progress"]
        if progress["metric_calls"] >= shown + EVERY and progress["best_score"] is not None:
            shown = progress["metric_calls"]
            print(f"  {shown:4} metric calls, best score {progress['best_score']:.2f}", flush=True)
    return service.call("GET", f"/job/{job_id}")


def is_scored(event: dict[str, Any]) -> bool:
    """Return whether an event of the run reports a scored example."""
    return event.get("event") == "results"


def certified(version: dict[str, Any]) -> str:
    """Return what the certificate of a version states."""
    certificate = version["certificate"]
    return "none" if certificate is None else str(certificate["statement"])


def end(service: Service, *, keep: bool) -> None:
    """Print what to do next; with `keep`, wait until Ctrl-C."""
    print("\n== What next\n")
    if not keep:
        print("  make demo-service ARGS=--keep   leaves it running; prints its key and page")
        print("  .venv/bin/evolverpc service up       starts your own: docs/guides/service.md")
        return
    print(f"  The service runs. Its page: {service.url}/ (paste the key below).")
    print("  In another terminal:\n")
    print(f"export GEPA_SERVICE_URL={service.url}\nexport GEPA_SERVICE_KEY={service.key}\n")
    print('  curl -H "Authorization: Bearer $GEPA_SERVICE_KEY" $GEPA_SERVICE_URL/jobs')
    print(f"  {service.url}/openapi.json describes every route.\n\n  Ctrl-C ends it.", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(60)


def _shortened(body: dict[str, Any]) -> str:
    text = json.dumps(body)
    return text if len(text) <= 48 else text[:45] + "..."


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except DemoFailed as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
