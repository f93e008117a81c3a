"""Steps and batches of the service: `python benchmarks/service_steps.py`. Its limits are for two idle cores.

`evolverpc service up` runs with bubblewrap, as an operator starts it. Measured are `STEPS` steps of two tenants that
are asked for at once; steps one after the other on a version that a step has used before, of a plain program and of one
that imports DSPy, each a moment after the one before (`warm`) and without a pause (`row`); a batch of `LONG` tasks of
`LONG_S` seconds; `SHORT` tasks that take a quarter of their time limit, none of which may time out; and a step of a
third tenant beside `QUEUED` queued steps of another.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from gepa_service.auth.keys import make_key
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.records import open_records

STEPS, ROUNDS, SANDBOXES = 20, 10, 8
LONG, LONG_S = 60, 4.0
SHORT, SHORT_S = 2000, 0.25
QUEUED = 1000
PAUSE_S = {"plain": 2.0, "dspy": 6.0}
"""Seconds after a step, in which the next sandbox starts."""

WAIT_S = 900.0
JOBS = 4
LIMITS = {
    "steps_at_once_s": 15.0,
    "plain_warm_p50_s": 1.0,
    "dspy_warm_p50_s": 1.5,
    "long_batch_s": 12.0,
    "false_timeouts": 0,
    "beside_queue_s": 5.0,
}
PLAIN = """
import time

seed_candidate = {"prompt": "plain"}


def run(example, candidate):
    time.sleep(example.get("sleep", 0))
    return candidate["prompt"]


def score(example, output):
    return 1.0
"""
PROGRAMS: dict[str, dict[str, str]] = {
    "plain": {"program.py": PLAIN, "gepa.toml": 'program = "program.py"\nworkers = 8\n'},
    "dspy": {
        "program.py": f"import dspy\n{PLAIN}",
        "gepa.toml": 'program = "program.py"\n',
        "requirements.txt": "dspy==3.4.1\n",
    },
}


def main() -> int:
    """Measure; return 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", metavar="CIDR", help="a network that is not public, where PyPI is found here")
    mirror = parser.parse_args().mirror
    load = os.getloadavg()[0]
    if shutil.which("bwrap") is None:
        print(json.dumps({"skipped": "bubblewrap is not installed"}))
        return 0
    with tempfile.TemporaryDirectory() as name, _service(Path(name), mirror) as (first, second, third):
        repositories = {kind: _repository(Path(name) / kind, files) for kind, files in PROGRAMS.items()}
        figures: dict[str, Any] = {}
        for kind, repository in repositories.items():
            figures |= _in_a_row(first, kind, repository, mirror)
        _step(second, repositories["plain"])
        with ThreadPoolExecutor(STEPS) as threads:
            began = time.monotonic()
            list(threads.map(lambda at: _step((first, second)[at % 2], repositories["plain"]), range(STEPS)))
            figures["steps_at_once_s"] = _since(began)
        _show(figures)
        figures["long_batch_s"], _ = _batch(first, repositories["plain"], LONG, LONG_S, LONG)
        _show(figures)
        took, statuses = _batch(first, repositories["plain"], SHORT, SHORT_S, LONG, timeout_s=4 * SHORT_S)
        figures |= {"short_batch_s": took, "false_timeouts": statuses.count("timeout"), "short_tasks": SHORT}
        assert not set(statuses) - {"timeout"}, statuses
        _show(figures)
        with ThreadPoolExecutor(STEPS) as threads:
            queued = {**_asked(repositories["plain"]), "wait_s": 0}
            list(threads.map(lambda _: _answer(first.post("/execute_step", json=queued)), range(QUEUED)))
        figures["beside_queue_s"] = _step(third, repositories["plain"])
        figures["queued_beside"] = _answer(first.get("/usage"))["jobs_queued"]
    figures |= {"load_before": round(load, 2), "limits": LIMITS}
    print(json.dumps(figures))
    return int(any(figures[key] > limit for key, limit in LIMITS.items()))


def _in_a_row(http: httpx.Client, kind: str, repository: Path, mirror: str | None) -> dict[str, float]:
    options = {"build_hosts": ["pypi.org", "files.pythonhosted.org", mirror]} if mirror else {}
    figures = {
        f"{kind}_first_s": _step(http, repository, options),
        f"{kind}_second_s": _step(http, repository, options),
    }
    for way, pause_s in {"warm": PAUSE_S[kind], "row": 0.0}.items():
        taken = []
        for _ in range(ROUNDS):
            time.sleep(pause_s)
            taken.append(_step(http, repository, options))
        figures[f"{kind}_{way}_p50_s"] = round(statistics.median(taken), 2)
        figures[f"{kind}_{way}_most_s"] = max(taken)
    _show(figures)
    return figures


def _step(http: httpx.Client, repository: Path, options: Mapping[str, Any] | None = None) -> float:
    """Make a step; return its seconds, as the caller sees them."""
    began = time.monotonic()
    step = _answer(http.post("/execute_step", json={**_asked(repository), "options": options or {}}))
    while step["status"] in ("queued", "pending", "running"):
        time.sleep(0.05)
        step = _answer(http.get(f"/execute_step/{step['step_id']}"))
    assert step["status"] == "success", step
    return _since(began)


def _asked(repository: Path) -> dict[str, Any]:
    return {
        "repo_url": str(repository),
        "mutation_type": "prompt",
        "candidate": {"prompt": "better"},
        "test_examples": [{"text": "t"}],
    }


def _batch(
    http: httpx.Client, repository: Path, count: int, sleep_s: float, parallelism: int, timeout_s: float = 300.0
) -> tuple[float, list[str]]:
    """Run a batch over `SANDBOXES` sandboxes; return its seconds, and the status of each task that is not completed."""
    asked = {
        "repo_url": str(repository),
        "tasks": [{"row": {"sleep": sleep_s}}] * count,
        "config": {"parallelism": parallelism, "timeout_per_task_ms": round(1000 * timeout_s)},
        "options": {"sandboxes": SANDBOXES},
    }
    began = time.monotonic()
    batch = _answer(http.post("/api/internal/rollouts/batch", json=asked))
    path = f"/api/internal/rollouts/batch/{batch['batch_id']}"
    while batch["status"] in ("queued", "pending", "running"):
        time.sleep(0.1)
        batch = _answer(http.get(path, params={"limit": 1}))
    took, statuses, after = _since(began), list[str](), None
    while True:
        page = _answer(http.get(path, params={"limit": 200, **({} if after is None else {"after": after})}))
        statuses += [each["status"] for each in page["results"]]
        after = page["next"]
        if page["complete"] or not page["results"]:
            break
    assert len(statuses) == count, (len(statuses), batch["reason"])
    return took, [status for status in statuses if status != "completed"]


def _since(began: float) -> float:
    return round(time.monotonic() - began, 2)


def _show(figures: Mapping[str, Any]) -> None:
    print(json.dumps(figures), flush=True)


@contextmanager
def _service(folder: Path, mirror: str | None) -> Iterator[list[httpx.Client]]:
    """Start the service; yield clients of three tenants."""
    command = [sys.executable, "-m", "gepa_service.cli", "up", "--data", str(folder / "data"), "--port", "0", "--json"]
    command += ["--jobs", str(JOBS), *(("--allow-network", mirror) if mirror else ())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            with closing(open_records(str(folder / "data" / "records.db"))) as records:
                keys = []
                for tenant in ("one", "two", "three"):
                    quotas = Quotas(sandboxes=100, jobs_queued=10**6, requests_per_minute=10**6)
                    records.insert(Tenant(tenant=TENANTS, id=tenant, name=tenant, quotas=quotas))
                    key, record = make_key(tenant, "bench", "editor")
                    records.insert(record)
                    keys.append(key)
            with ExitStack() as open_clients:
                yield [
                    open_clients.enter_context(
                        httpx.Client(
                            base_url=ready["url"],
                            headers={"Authorization": f"Bearer {key}"},
                            timeout=WAIT_S,
                            trust_env=False,
                            limits=httpx.Limits(max_connections=None),
                        )
                    )
                    for key in keys
                ]
        finally:
            process.terminate()
            process.wait()


def _repository(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
    for words in (["init", "--quiet"], ["add", "--all"], [*identity, "commit", "--quiet", "--message", "Add it"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def _answer(answer: httpx.Response) -> dict[str, Any]:
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


if __name__ == "__main__":
    sys.exit(main())
