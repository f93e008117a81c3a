"""Batches of rollouts and single steps, done in sandboxes."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gepa_client.journal.store import open_store
from gepa_service.api.app_state import Service
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.jobs import month_spending
from gepa_service.jobs.git_access import GitAccess
from gepa_service.jobs.month_spending import NOTHING_LEFT
from gepa_service.jobs.parts import AttemptParts, Revealed
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.model.work import TaskResult, Work
from gepa_service.records.store import TenantRecords
from tests.gepa_service.faults.processes import command_of
from tests.gepa_service.jobs.test_secrets_of_jobs import model
from tests.gepa_service.platform import MASTER, processes_of, working
from tests.gepa_service.routes.conftest import Caller
from tests.sandbox_runtime.source.repositories import commit
from tests.support.waiting import eventually

WAIT_S = 100
PROGRAM = """
import os, time

seed_candidate = {"prompt": "plain"}


def run(example, candidate):
    time.sleep(example.get("sleep", 0))
    if "fail" in example:
        raise ValueError("no such word")
    return f"{candidate['prompt']} {example['text']} {os.environ.get('OWN_KEY', 'none')}"


def score(example, output):
    return float(output.startswith("better")), "start with better"
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    commit(tmp_path / "program", {"program.py": PROGRAM, "gepa.toml": 'program = "program.py"\nworkers = 4\n'})
    return str(tmp_path / "program")


@pytest.fixture
def dispatcher(service: Service, tmp_path: Path) -> Iterator[None]:
    """Work is done while the test runs; its sandboxes isolate nothing."""

    def secrets(tenant: str) -> Revealed:
        return Revealed({"OWN_KEY": f"{tenant}'s", "OPENAI_API_KEY": f"sk-of-{tenant}"})

    with contextlib.closing(open_store(service.journals)) as journals:
        parts = AttemptParts(
            records=service.records,
            journals=journals,
            tokens=JobTokens(service.records, [MASTER]),
            api="http://127.0.0.1:9",
            folder=tmp_path / "works",
            cache=tmp_path / "cache",
            git=GitAccess(service.records, service.repositories, None),
            sandbox="process",
            secrets=secrets,
        )
        with working(parts, at_once=3):
            yield


async def polled(caller: Caller, batch_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Poll a batch to its end; return its last state, and all results in the order they came."""
    results: list[dict[str, Any]] = []
    after = None
    async with asyncio.timeout(WAIT_S):
        while True:
            query = {"limit": 2, **({"after": after} if after is not None else {})}
            page = (await caller("GET", f"/rollouts/batch/{batch_id}", params=query)).json()
            results += page["results"]
            if page["complete"]:
                return page, results
            after = page["next"]
            if not page["results"]:
                await asyncio.sleep(0.1)


async def test_a_batch_returns_the_result_of_every_task_once(editor: Caller, program: str, dispatcher: None) -> None:
    tasks = [{"text": f"t{at}", "sleep": 0.3 if at == 0 else 0} for at in range(5)] + [{"text": "x", "fail": 1}]
    body = {
        "repo_url": program,
        "tasks": tasks,
        "candidate": {"prompt": "better"},
        "options": {"pass_env": ["OWN_KEY"]},
    }
    accepted = await editor("POST", "/rollouts/batch", body)
    assert (accepted.status_code, accepted.json()["status"]) == (202, "queued"), accepted.text
    ended, results = await polled(editor, accepted.json()["batch_id"])
    assert (ended["status"], ended["done"], ended["failed"], ended["total"]) == ("completed", 6, 0, 6), ended
    assert sorted(each["index"] for each in results) == list(range(6))
    assert results[0]["index"] != 0
    by_index = {each["index"]: each for each in results}
    assert by_index[1]["output"] == "better t1 [redacted]", "the program has its secret, and the result has not"
    assert (by_index[1]["score"], by_index[5]["status"], by_index[5]["error"]["type"]) == (
        1.0,
        "program_error",
        "ValueError",
    )


CALL_USD = 0.01
CALLING = """
import json, os, urllib.request

seed_candidate = {"prompt": "plain"}


def run(example, candidate):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m", "messages": [{"role": "user", "content": example["text"]}]}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]["content"]


def score(example, output):
    return 1.0
"""


async def test_calls_of_models_by_a_batch_use_the_tenants_key_and_money_and_wait_for_more(
    editor: Caller,
    service: Service,
    tmp_path: Path,
    dispatcher: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(month_spending, "KNOWN_S", 0.1)
    service.records.insert(Tenant(tenant=TENANTS, id="acme", name="Acme", quotas=Quotas(usd_per_month=3 * CALL_USD)))
    commit(tmp_path / "calling", {"program.py": CALLING, "gepa.toml": 'program = "program.py"\n'})
    keys, released = list[str | None](), threading.Event()

    def called(authorization: str | None) -> None:
        keys.append(authorization)
        if len(keys) > 5:
            released.wait(WAIT_S)

    with model(called) as base_url:
        options = {
            "model_prices": {"m": [0, CALL_USD / 5 * 1_000_000]},  # an answer has five tokens
            "model_providers": {"openai": {"base_url": base_url, "key_env": "OPENAI_API_KEY"}},
        }
        tasks = [{"text": f"t{at}"} for at in range(12)]
        body = {"repo_url": str(tmp_path / "calling"), "tasks": tasks, "parallelism": 1, "options": options}
        accepted = await editor("POST", "/rollouts/batch", body)
        batch_id = accepted.json()["batch_id"]
        async with asyncio.timeout(WAIT_S):
            while True:
                waiting = (await editor("GET", f"/rollouts/batch/{batch_id}")).json()
                if waiting["reason"] == NOTHING_LEFT:
                    break
                await asyncio.sleep(0.1)
        released.set()
        assert waiting["status"] == "queued", waiting
        assert 3 * CALL_USD <= waiting["cost_usd"] < 12 * CALL_USD
        async with asyncio.timeout(WAIT_S):
            while True:  # a call in flight is counted when its process ends
                usage = (await editor("GET", "/usage")).json()["usd"]
                cost = (await editor("GET", f"/rollouts/batch/{batch_id}")).json()["cost_usd"]
                if usage == pytest.approx(cost):
                    break
        refused = await editor("POST", "/rollouts/batch", body)
        assert (refused.status_code, refused.json()["quota"]) == (429, "usd_per_month"), refused.text
        tenant = service.records.get(Tenant, TENANTS, "acme")
        assert tenant is not None
        service.records.replace(tenant.model_copy(update={"quotas": Quotas(usd_per_month=100.0)}))
        ended, results = await polled(editor, batch_id)
    assert ended["status"] == "completed", ended
    assert sorted(each["index"] for each in results) == list(range(12))
    assert set(keys) == {"Bearer sk-of-acme"}
    assert ended["cost_usd"] == pytest.approx(len(keys) * CALL_USD, abs=1.5 * CALL_USD)
    assert (await editor("GET", "/usage")).json()["unpriced"] <= 1  # the call that was cut off


@pytest.mark.long
async def test_the_time_of_a_batch_cancels_the_rest_and_a_task_has_its_own(
    editor: Caller, program: str, dispatcher: None
) -> None:
    tasks = [{"text": "quick"}, *({"text": "slow", "sleep": 60} for _ in range(30))]
    body = {"repo_url": program, "tasks": tasks, "parallelism": 2, "task_timeout_s": 3, "timeout_s": 20}
    accepted = await editor("POST", "/rollouts/batch", body)
    ended, results = await polled(editor, accepted.json()["batch_id"])
    assert ended["status"] == "partial", [each["error"] for each in results][:6]
    assert sorted(each["index"] for each in results) == list(range(31))
    assert {each["status"] for each in results} == {"ok", "timeout", "cancelled"}


async def test_what_a_failed_batch_states_has_no_secret(editor: Caller, tmp_path: Path, dispatcher: None) -> None:
    shows = "import os\nraise SystemExit('the key is ' + os.environ['OPENAI_API_KEY'])\n"
    commit(tmp_path / "program", {"program.py": shows, "gepa.toml": 'program = "program.py"\n'})
    options = {"pass_env": ["OPENAI_API_KEY"]}
    body = {"repo_url": str(tmp_path / "program"), "tasks": [{"text": "a"}], "options": options}
    ended, _ = await polled(editor, (await editor("POST", "/rollouts/batch", body)).json()["batch_id"])
    assert ended["status"] == "failed"
    assert "the key is [redacted]" in ended["reason"]
    assert "sk-of-acme" not in ended["reason"]


async def test_a_cancelled_batch_ends_its_process(
    editor: Caller, program: str, dispatcher: None, acme: TenantRecords
) -> None:
    body = {"repo_url": program, "tasks": [{"text": "a"}, {"text": "slow", "sleep": 90}], "parallelism": 1}
    batch_id = (await editor("POST", "/rollouts/batch", body)).json()["batch_id"]
    await eventually(lambda: acme.count(TaskResult, {"work_id": batch_id}), WAIT_S)
    await editor("POST", f"/rollouts/batch/{batch_id}/cancel")
    ended, results = await polled(editor, batch_id)
    assert (ended["status"], [each["index"] for each in results]) == ("cancelled", [0])
    await eventually(lambda: getattr(acme.get(Work, batch_id), "done", 0) == 1, WAIT_S)
    assert (await editor("POST", f"/rollouts/batch/{batch_id}/cancel")).status_code == 200


async def test_a_batch_whose_process_is_killed_continues_with_the_tasks_that_are_left(
    editor: Caller, program: str, dispatcher: None, acme: TenantRecords, tmp_path: Path
) -> None:
    tasks = [{"text": f"t{at}", "sleep": 0 if at < 2 else 1} for at in range(6)]
    body = {"repo_url": program, "tasks": tasks, "parallelism": 1}
    batch_id = (await editor("POST", "/rollouts/batch", body)).json()["batch_id"]
    await eventually(lambda: acme.count(TaskResult, {"work_id": batch_id}) > 1, WAIT_S)
    work = acme.get(Work, batch_id)
    assert work is not None
    [process] = [pid for pid in processes_of(work) if b"work_main" in command_of(pid)]
    os.kill(process, signal.SIGKILL)
    ended, results = await polled(editor, batch_id)
    assert (ended["status"], ended["done"], ended["failed"]) == ("completed", 6, 0), ended
    assert sorted(each["index"] for each in results) == list(range(6))
    assert [work.attempts for work in acme.page(Work)] == [2]
    logs = (await editor("GET", f"/job/{batch_id}/logs")).json()["lines"]
    assert [line["text"] for line in logs if "begins" in line["text"]] == ["attempt 1 begins", "attempt 2 begins"]


async def test_a_step_changes_texts_and_runs_examples_before_and_after_in_one_call(
    editor: Caller, program: str, dispatcher: None
) -> None:
    body = {
        "repo_url": program,
        "mutation": {"kind": "prompt", "texts": {"prompt": "better"}},
        "examples": [{"text": "a"}, {"text": "b"}],
        "wait_s": WAIT_S,
    }
    answered = await editor("POST", "/execute_step", body)
    step = answered.json()
    assert (answered.status_code, step["status"], step["made"]) == (200, "completed", True), step
    assert step["candidate"] == {"prompt": "better"}
    scores = [(each["before"]["score"], each["after"]["score"], each["after"]["output"]) for each in step["examples"]]
    assert scores == [(0.0, 1.0, "better a none"), (0.0, 1.0, "better b none")]
    assert (await editor("GET", f"/execute_step/{step['step_id']}")).json() == step


async def test_a_step_applies_a_patch_and_returns_its_branch(editor: Caller, program: str, dispatcher: None) -> None:
    head = "\n import os, time\n \n"
    patch = f"--- a/program.py\n+++ b/program.py\n@@ -1,5 +1,5 @@\n {head}"
    patch += '-seed_candidate = {"prompt": "plain"}\n+seed_candidate = {"prompt": "plain"}  # kept\n \n'
    body = {
        "repo_url": program,
        "mutation": {"kind": "patch", "diff": patch},
        "examples": [{"text": "a"}],
        "wait_s": WAIT_S,
    }
    step = (await editor("POST", "/execute_step", body)).json()
    assert step["status"] == "completed", step
    assert step["made"], step["message"]
    assert "# kept" in step["diff"]
    assert step["branch"].startswith("evolve/")
    assert len(step["commit"]) == 40
    assert step["bundle"]
    assert step["examples"][0]["after"]["output"] == "plain a none"


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("/rollouts/batch", {}),
    ("/rollouts/batch", {"tasks": []}),
    ("/rollouts/batch", {"tasks": [{}], "parallelism": 0}),
    ("/rollouts/batch", {"tasks": [{}], "candidate": {"a": 1}}),
    ("/rollouts/batch", {"tasks": [{}], "candidate": {"a": "b"}, "program_id": "p"}),
    ("/rollouts/batch", {"tasks": [{}], "options": {"seed": 1}}),
    ("/rollouts/batch", {"tasks": [{}], "options": {"sandbox": "process"}}),
    ("/rollouts/batch", {"tasks": [{}], "timeout_s": 1e9}),
    ("/execute_step", {"mutation": {"kind": "merge"}}),
    ("/execute_step", {"mutation": {"kind": "prompt", "texts": {}}}),
    ("/execute_step", {"mutation": {"kind": "patch", "diff": ""}}),
    ("/execute_step", {"mutation": {"kind": "change_request", "request": 5}}),
]


async def test_wrong_fields_are_refused(editor: Caller, program: str) -> None:
    for path, fields in WRONG:
        assert (await editor("POST", path, {"repo_url": program, **fields})).status_code == 422
