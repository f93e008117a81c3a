"""Batches of rollouts and single steps, done in sandboxes."""

import asyncio
import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gepa_service.jobs.job_environment import Place
from gepa_service.jobs.month_spending import NOTHING_LEFT
from gepa_service.model.program_version import Program
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.model.work import TaskResult, Work
from gepa_service.records import TenantRecords
from gepa_service.service import Revealed, Service
from tests.gepa_service.jobs.test_secrets_of_jobs import model
from tests.gepa_service.jobs.test_warm_sandboxes import CALL_USD, CALLING, priced
from tests.gepa_service.platform import shared_processes_in, working
from tests.gepa_service.routes.conftest import Caller
from tests.sandbox_runtime.source.repositories import commit, git
from tests.support.waiting import eventually

WAIT_S = 100
PROGRAM = """
import os, time

seed_candidate = {"prompt": "plain"}


def run(example, candidate):
    time.sleep(example.get("sleep", 0))
    if "fail" in example:
        raise ValueError("no such word")
    if "pid" in example:
        return os.getcwd()
    return f"{candidate['prompt']} {example['text']} {os.environ.get('OWN_KEY') or example.get('model_id', 'none')}"


def score(example, output):
    return float(output.startswith("better")), "start with better"
"""


def patch_of(folder: Path) -> str:
    """A change of the program after which its outputs end with an exclamation mark."""
    (folder / "program.py").write_text(PROGRAM.replace("'none')}", "'none')}!"))
    diff = git(folder, "diff")
    git(folder, "checkout", "--quiet", "--", ".")
    return diff + "\n"


@pytest.fixture
def program(tmp_path: Path) -> str:
    commit(tmp_path / "program", {"program.py": PROGRAM, "gepa.toml": 'program = "program.py"\nworkers = 4\n'})
    return str(tmp_path / "program")


@pytest.fixture
def dispatcher(service: Service, tmp_path: Path) -> Iterator[None]:
    """Work is done while the test runs; its sandboxes isolate nothing."""

    def secrets(tenant: str) -> Revealed:
        return Revealed({"OWN_KEY": f"{tenant}'s", "OPENAI_API_KEY": f"sk-of-{tenant}"})

    own = replace(service, revealed=secrets)
    place = Place("http://127.0.0.1:9", tmp_path / "works", tmp_path / "cache", "process")
    with contextlib.closing(own.store), working(own, place, at_once=3):
        yield


async def polled(caller: Caller, batch_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Poll a batch to its end; return its last state, and all results in the order they came."""
    results: list[dict[str, Any]] = []
    after = None
    async with asyncio.timeout(WAIT_S):
        while True:
            query = {"limit": 2, **({"after": after} if after is not None else {})}
            page = (await caller("GET", f"/api/internal/rollouts/batch/{batch_id}", params=query)).json()
            results += page["results"]
            if page["complete"]:
                return page, results
            after = page["next"]
            if not page["results"]:
                await asyncio.sleep(0.1)


async def test_a_batch_returns_each_result_once_waits_in_no_task_and_shares_its_tasks_among_all_sandboxes(
    editor: Caller, program: str, dispatcher: None
) -> None:
    rows: list[dict[str, Any]] = [{"text": f"t{at}"} for at in range(5)] + [{"text": "x", "fail": 1}]
    rows += [{"text": "t", "sleep": 2, "pid": True} for _ in range(12)]
    body = {
        "repo_url": program,
        "tasks": of_rows(rows),
        "candidate": {"prompt": "better"},
        "config": {"parallelism": 12, "timeout_per_task_ms": 3500},
        "options": {"pass_env": ["OWN_KEY"], "sandboxes": 2, "server_args": "--concurrency 2"},
    }
    accepted = await editor("POST", "/api/internal/rollouts/batch", body)
    assert (accepted.status_code, accepted.json()["status"]) == (202, "queued"), accepted.text
    ended, results = await polled(editor, accepted.json()["batch_id"])
    first = await editor("GET", f"/api/internal/rollouts/batch/{ended['batch_id']}", params={"limit": 2})
    assert (len(first.json()["results"]), first.json()["complete"]) == (2, False)
    progress = {"total": 18, "completed": 17, "failed": 1, "pending": 0}
    assert (ended["status"], ended["progress"]) == ("partial", progress), (ended, [each["error"] for each in results])
    by_id = {int(each["task_id"]): each for each in results}
    assert sorted(by_id) == list(range(len(results))) == list(range(18))
    assert by_id[1]["output"] == "better t1 [redacted]", "the program has its secret, and the result has not"
    assert (by_id[1]["score"], by_id[5]["status"]) == (1.0, "failed")
    assert by_id[5]["error"] == "ValueError: no such word"
    assert by_id[6]["execution_time_ms"] >= 2000
    by_sandbox = Counter(by_id[at]["output"] for at in range(6, 18))
    assert len(by_sandbox) == 2 and min(by_sandbox.values()) >= 3, by_sandbox  # the second may have started later
    listed = (await editor("GET", "/api/internal/rollouts/batch")).json()["items"]
    assert [(each["batch_id"], each["progress"]) for each in listed] == [(ended["batch_id"], progress)]


def of_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"row": row} for row in rows]


async def test_calls_of_models_by_a_batch_use_the_tenants_key_and_money_and_wait_for_more(
    editor: Caller, service: Service, acme: TenantRecords, tmp_path: Path, dispatcher: None
) -> None:
    service.records.insert(Tenant(tenant=TENANTS, id="acme", name="Acme", quotas=Quotas(usd_per_month=3 * CALL_USD)))
    runs = "\n\ndef run(example, candidate):\n    return call(example['text'])\n"
    commit(tmp_path / "calling", {"program.py": CALLING + runs, "gepa.toml": 'program = "program.py"\n'})
    keys, released = list[str | None](), threading.Event()

    def called(authorization: str | None) -> None:
        keys.append(authorization)
        if len(keys) > 5:
            released.wait(WAIT_S)

    with model(called) as base_url:
        tasks = of_rows([{"text": f"t{at}"} for at in range(12)])
        config = {"parallelism": 1}
        body = {"repo_url": str(tmp_path / "calling"), "tasks": tasks, "config": config, "options": priced(base_url)}
        accepted = await editor("POST", "/api/internal/rollouts/batch", body)
        batch_id = accepted.json()["batch_id"]
        await eventually(lambda: getattr(acme.get(Work, batch_id), "reason", None) == NOTHING_LEFT, WAIT_S)
        waiting = (await editor("GET", f"/api/internal/rollouts/batch/{batch_id}")).json()
        released.set()
        assert (waiting["status"], waiting["reason"]) == ("queued", NOTHING_LEFT), waiting
        assert 3 * CALL_USD <= waiting["cost_usd"] < 12 * CALL_USD
        async with asyncio.timeout(WAIT_S):
            while True:  # a call in flight is counted when its process ends
                usage = (await editor("GET", "/usage")).json()["usd"]
                cost = (await editor("GET", f"/api/internal/rollouts/batch/{batch_id}")).json()["cost_usd"]
                if usage == pytest.approx(cost):
                    break
        refused = await editor("POST", "/api/internal/rollouts/batch", body)
        assert (refused.status_code, refused.json()["quota"]) == (429, "usd_per_month"), refused.text
        tenant = service.records.get(Tenant, TENANTS, "acme")
        assert tenant is not None
        service.records.replace(tenant.model_copy(update={"quotas": Quotas(usd_per_month=100.0)}))
        ended, results = await polled(editor, batch_id)
    assert ended["status"] == "completed", ended
    assert sorted(int(each["task_id"]) for each in results) == list(range(12))
    assert set(keys) == {"Bearer sk-of-acme"}
    assert ended["cost_usd"] == pytest.approx(len(keys) * CALL_USD, abs=1.5 * CALL_USD)
    assert (await editor("GET", "/usage")).json()["unpriced"] <= 1  # the call that was cut off


async def test_the_time_of_a_batch_cancels_the_rest_and_a_task_has_its_own(
    editor: Caller, program: str, dispatcher: None
) -> None:
    tasks = of_rows([{"text": "quick"}, *({"text": "slow", "sleep": 60} for _ in range(30))])
    config = {"parallelism": 2, "timeout_per_task_ms": 1000, "timeout_ms": 6000}
    body = {"repo_url": program, "tasks": tasks, "config": config}
    accepted = await editor("POST", "/api/internal/rollouts/batch", body)
    ended, results = await polled(editor, accepted.json()["batch_id"])
    assert ended["status"] == "partial", [each["error"] for each in results][:6]
    assert sorted(int(each["task_id"]) for each in results) == list(range(31))
    assert {each["status"] for each in results} == {"completed", "timeout", "cancelled"}
    assert ended["progress"] == {"total": 31, "completed": 1, "failed": 30, "pending": 0}


async def test_batches_whose_process_is_killed_continue_with_the_tasks_that_are_left_and_one_is_cancelled(
    editor: Caller, program: str, dispatcher: None, acme: TenantRecords, tmp_path: Path
) -> None:
    short = of_rows([{"text": f"t{at}", "sleep": 0 if at in (1, 2) else 1} for at in range(6)])
    slow = of_rows([{"text": "a"}, {"text": "b"}, {"text": "slow", "sleep": 90}])
    batches = []
    for tasks in (short, slow):
        body = {"repo_url": program, "tasks": tasks, "config": {"parallelism": 2}}
        batches.append((await editor("POST", "/api/internal/rollouts/batch", body)).json()["batch_id"])
    await eventually(lambda: all(acme.count(TaskResult, {"work_id": each}) > 1 for each in batches), WAIT_S)
    [process] = shared_processes_in(tmp_path / "works")
    os.kill(process, signal.SIGKILL)
    continued, cancelled = batches
    ended, results = await polled(editor, continued)
    assert (ended["status"], ended["progress"]["completed"]) == ("completed", 6), ended
    assert sorted(each["task_id"] for each in results) == list("012345")
    logs = (await editor("GET", f"/job/{continued}/logs")).json()["lines"]
    assert [line["text"] for line in logs if "begins" in line["text"]] == ["attempt 1 begins", "attempt 2 begins"]
    for _ in range(2):
        assert (await editor("POST", f"/api/internal/rollouts/batch/{cancelled}/cancel")).status_code == 200
    ended, results = await polled(editor, cancelled)
    assert (ended["status"], sorted(each["task_id"] for each in results)) == ("cancelled", ["0", "1"])
    await eventually(lambda: not shared_processes_in(tmp_path / "works"), WAIT_S)
    assert [work.attempts for work in acme.page(Work)] == [2, 2]


async def test_a_batch_has_the_options_of_the_job_that_made_its_version_and_over_them_its_own(
    editor: Caller, program: str, acme: TenantRecords
) -> None:
    made = {"seed": 3, "sandboxes": 4, "sandbox_memory_mb": 512, "pass_env": ["KEY"], "server_args": "--workers 2"}
    acme.insert(Work(tenant="acme", id="job_1", repo_url=program, settings=made, created_by="key:x"))
    of_version = {"texts": {"prompt": "better"}, "base_commit": "c" * 40}
    acme.insert(Program(tenant="acme", id="version", line="line", job_id="job_1", repo_url=program, **of_version))
    own = {"sandbox_memory_mb": 1024, "server_args": "--concurrency 2"}
    body = {"agent_id": "version", "tasks": of_rows([{"text": "a"}]), "options": own}
    accepted = await editor("POST", "/api/internal/rollouts/batch", body)
    work = acme.get(Work, accepted.json()["batch_id"])
    flags = "--workers 2 --concurrency 2"
    assert work is not None
    expected = {"repo": program, "sandbox_memory_mb": 1024, "pass_env": ["KEY"], "server_args": flags}
    assert work.settings == {**expected, "ref": "c" * 40}


async def test_a_step_makes_a_version_of_code_that_a_batch_runs_in_all_its_sandboxes(
    editor: Caller, program: str, dispatcher: None
) -> None:
    body = {
        "repo_url": program,
        "program_id": "next",
        "mutation_type": "code",
        "diff": patch_of(Path(program)),
        "test_examples": [{"text": "a"}, {"text": "b"}],
        "candidate": {"prompt": "better"},
        "run_before": True,
        "wait_s": WAIT_S,
    }
    answered = await editor("POST", "/execute_step", body)
    step = answered.json()
    assert (answered.status_code, step["status"], step["error"]) == (200, "success", None), step
    assert (step["branch_name"], len(step["commit"]), step["candidate"]) == ("program_next", 40, {"prompt": "better"})
    assert "+    return" in step["diff"]
    outputs = [(each["before"]["output"], each["output"], each["score"]) for each in step["pipeline_outputs"]]
    assert outputs == [("better a none", "better a none!", 1.0), ("better b none", "better b none!", 1.0)]
    assert (await editor("GET", f"/execute_step/{step['step_id']}")).json() == step
    assert [each["step_id"] for each in (await editor("GET", "/execute_step")).json()["items"]] == [step["step_id"]]
    version = (await editor("GET", "/program/next")).json()
    assert (version["texts"], version["parents"], version["commit"]) == ({"prompt": "better"}, [], step["commit"])
    again = await editor("POST", "/execute_step", body)
    assert (again.status_code, again.json()["field"]) == (409, "program_id")
    added = "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"
    fields = {"mutation_type": "code", "diff": added, "test_examples": [{"text": "a"}], "wait_s": WAIT_S}
    further = (await editor("POST", "/execute_step", {**fields, "parent_program_id": "next"})).json()
    assert (further["status"], further["error"]) == ("success", None)
    tasks = {
        "agent_id": further["program_id"],
        "system_prompt": "best",
        "tasks": of_rows([{"text": "a"}]),
        "config": {"parallelism": 4, "model_id": "p/m"},
    }
    tasks["options"] = {"sandboxes": 2}
    ended, results = await polled(
        editor, (await editor("POST", "/api/internal/rollouts/batch", tasks)).json()["batch_id"]
    )
    assert [each["output"] for each in results] == ["best a p/m!"], (ended, results)
