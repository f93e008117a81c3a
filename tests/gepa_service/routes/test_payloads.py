"""The payloads of `payloads/`, verbatim: what is sent, and the fields that the answer has."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gepa_service.model.program_version import Installation, Program
from gepa_service.model.work import ENDED, Work
from gepa_service.records import TenantRecords
from tests.gepa_service.github_server import LoopbackGitHub
from tests.gepa_service.jobs.test_secrets_of_jobs import model
from tests.gepa_service.platform import platform, working
from tests.gepa_service.routes.conftest import Caller
from tests.gepa_service.routes.test_steps_and_batches import polled
from tests.rpc_server.dspy.conftest import dspy_python
from tests.sandbox_runtime.source.repositories import commit
from tests.support.rounds import ALL
from tests.support.waiting import eventually

__all__ = ["dspy_python"]

PAYLOADS = Path(__file__).parent / "payloads"
WAIT_S = 240
MODULE = """
from types import SimpleNamespace

import dspy


class Scripted(dspy.BaseLM):
    def forward(self, prompt=None, messages=None, **_):
        asked = messages[-1]["content"]
        if "parcel" in asked:
            raise ValueError("no answer")
        label = "billing" if "one word" in messages[0]["content"] else "It is about billing."
        text = f"[[ ## reasoning ## ]]\\nwhy\\n\\n[[ ## label ## ]]\\n{label}\\n\\n[[ ## completed ## ]]"
        choice = SimpleNamespace(message=SimpleNamespace(content=text, tool_calls=None), finish_reason="stop")
        return SimpleNamespace(choices=[choice], usage={}, model="scripted")


dspy.configure(lm=Scripted("scripted", cache=False))


class ClassName(dspy.Module):
    def __init__(self):
        super().__init__()
        self.judge = dspy.ChainOfThought("text -> label")

    def forward(self, text):
        return self.judge(text=text)
"""
METRIC = """
import dspy


def metric(example, prediction, trace=None, pred_name=None, pred_trace=None):
    return dspy.Prediction(score=float(prediction.label == example.get("label", "billing")), feedback="one word")
"""
SETTINGS = """
program = "module.ClassName"
kind = "dspy"
metric = "eval.evaluate.metric"
env = {{PYTHONPATH = "{packages}"}}
allow_mutations = true
agent_command = ["sh", "-c", "sed -i 's/text=text)/text=text.strip())/' src/module.py && echo stripped"]

[rollouts]
user_message = "text"
"""
KINDS = {int: (int, float), float: (int, float), str: (str,), dict: (dict,), list: (list,), type(None): (type(None),)}


def payload(name: str, **filled: str) -> dict[str, Any]:
    """A request as it is stored, with what it leaves open."""
    text = (PAYLOADS / f"{name}.json").read_text()
    for key, value in filled.items():
        text = text.replace(f"<{key}>", value)
    assert not re.search(r"<\w+>", text)
    found: dict[str, Any] = json.loads(text)
    return found


async def sent(caller: Caller, name: str, **filled: str) -> dict[str, Any]:
    request = payload(name, **filled)
    answered = await caller(request["method"], request["path"], request["body"])
    assert answered.is_success, answered.text
    found: dict[str, Any] = answered.json()
    return found


def has_fields(found: dict[str, Any], name: str) -> None:
    """Fail unless the answer has the fields of the stored one, with values of their types."""
    expected = json.loads((PAYLOADS / f"{name}.answer.json").read_text())
    assert expected.keys() <= found.keys()
    wrong = {key: found[key] for key, value in expected.items() if not isinstance(found[key], KINDS[type(value)])}
    assert not wrong


@pytest.fixture
def repository(tmp_path: Path, dspy_python: Path) -> str:
    [packages] = (dspy_python.parents[1] / "lib").glob("python*/site-packages")
    rows = "".join(json.dumps({"text": f"I was charged {at} times", "label": "billing"}) + "\n" for at in range(4))
    files = {
        "src/module.py": MODULE,
        "module.py": "from src.module import ClassName\n",
        "eval/evaluate.py": METRIC,
        "data/train.jsonl": rows,
        "data/val.jsonl": rows,
        "gepa.toml": SETTINGS.format(packages=packages),
    }
    commit(tmp_path / "program", files)
    return str(tmp_path / "program")


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[Caller, TenantRecords]]:
    """An editor of a whole service with a worker, and the editor's records."""
    with platform(tmp_path) as opened:
        key = opened.key("acme", "editor")
        with working(opened.parts(), opened.place()):
            async with httpx.AsyncClient(base_url=opened.api, timeout=WAIT_S) as client:
                yield Caller(client, key), opened.of("acme")


async def test_an_optimization_is_submitted(editor: Caller, program: str) -> None:
    submitted = await sent(editor, "optimize", repository=program)
    has_fields(submitted, "optimize")
    assert 0 < (await editor("GET", f"/job/{submitted['job_id']}")).json()["total_iterations"] < 1000


async def test_a_repository_is_connected_by_the_number_of_an_installation(
    github: LoopbackGitHub, github_client: httpx.AsyncClient, acme: TenantRecords, program: str
) -> None:
    github.add("owner/name", Path(program))
    github.installation = 12345
    acme.insert(Installation(tenant="acme", id="12345", installation_id="12345", account="owner"))
    has_fields(
        await sent(Caller(github_client, "acme-editor"), "connect-git", repository=github.url("owner/name")),
        "connect-git",
    )


async def optimized(editor: Caller, acme: TenantRecords, repository: str) -> str:
    """Have the program optimized; return the id of its new version."""
    body = payload("optimize", repository=repository)["body"]
    with model(lambda _: None, lambda _: "Answer with one word.") as base_url:
        body["options"] = {"model_providers": {"openai": {"base_url": base_url}}}
        body["max_metric_calls"] = 20
        job_id = (await editor("POST", "/optimize", body)).json()["job_id"]
        await eventually(lambda: getattr(acme.get(Work, job_id), "status", None) in ENDED, WAIT_S)
    job = (await editor("GET", f"/job/{job_id}")).json()
    assert job["status"] == "completed", (job, (await editor("GET", f"/job/{job_id}/logs")).text)
    has_fields(job, "job")
    assert job["best_candidate"] == {"judge.predict": "Answer with one word."}
    assert job["total_iterations"] == job["current_iteration"]
    version = (await editor("GET", f"/program/{job['program_id']}")).json()
    assert version["program_json"]["judge.predict"]["signature"]["instructions"] == "Answer with one word."
    found: str = job["program_id"]
    return found


@pytest.mark.timeout(400)
async def test_a_dspy_program_is_optimized_changed_by_steps_and_run_in_a_batch(
    running: tuple[Caller, TenantRecords], repository: str
) -> None:
    editor, acme = running
    client_id = (await editor("POST", "/connect-git", {"repo_url": repository})).json()["client_id"]
    parent = await optimized(editor, acme, repository) if ALL else "parent"
    if not ALL:
        texts = {"judge.predict": "Answer with one word."}
        fields = {"client_id": client_id, "line": repository, "repo_url": repository, "texts": texts}
        acme.insert(Program(tenant="acme", id=parent, job_id="j", **fields))

    prompt = await sent(editor, "execute-step-prompt", client_id=client_id, program_id=parent)
    has_fields(prompt, "execute-step")
    assert prompt["status"] == "success", prompt
    assert (prompt["program_id"], prompt["branch_name"]) == ("prog_042", "program_prog_042")
    assert [(each["example_id"], each["output"]["label"]) for each in prompt["pipeline_outputs"]] == [(0, "billing")]
    assert [(each["example_id"], bool(each["trace"])) for each in prompt["traces"]] == [(0, True)]
    assert prompt["candidate"] == {"judge.predict": "Answer with one word."}
    assert prompt["program_json"]["judge.predict"]["signature"]["instructions"] == "Answer with one word."

    code = await sent(editor, "execute-step-code", client_id=client_id)
    has_fields(code, "execute-step")
    assert (code["program_id"], code["status"], code["traces"]) == ("prog_043", "success", []), code
    assert "+        return self.judge(text=text.strip())" in code["diff"]
    made = (await editor("GET", "/program/prog_043")).json()
    assert (made["parents"], made["branch"]) == (["prog_042"], "program_prog_043")
    assert made["program_json"] == code["program_json"]
    patch = (await editor("POST", "/program/prog_043/deliver", {"mode": "patch"})).json()["patch"]
    assert "text.strip()" in patch

    accepted = await sent(editor, "rollouts-batch", program_id="prog_042")
    has_fields(accepted, "rollouts-batch")
    batch, results = await polled(editor, accepted["batch_id"])
    has_fields({**batch, "results": results}, "rollouts-batch-status")
    assert batch["status"] == "partial", batch
    assert batch["progress"] == {"total": 2, "completed": 1, "failed": 1, "pending": 0}
    first, second = sorted(results, key=lambda each: str(each["task_id"]))
    assert (first["task_id"], first["status"], first["output"]["label"]) == ("t1", "completed", "billing")
    assert first["trace"]
    assert isinstance(first["execution_time_ms"], int)
    assert (second["task_id"], second["status"], second["error"]) == ("t2", "failed", "ValueError: no answer")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("execute-step-prompt", {"mutation_type": "merge"}, "mutation_type"),
    ("execute-step-prompt", {"candidate": None}, "candidate"),
    ("execute-step-prompt", {"candidate": {}}, "candidate"),
    ("execute-step-prompt", {"candidate": {"nonesuch": "a"}}, "candidate"),
    ("execute-step-prompt", {"candidate": {"git_branch": "a"}}, "candidate"),
    ("execute-step-prompt", {"change_request": "Strip."}, "change_request"),
    ("execute-step-prompt", {"program_id": "a b"}, "program_id"),
    ("execute-step-prompt", {"program_id": "program_1"}, "program_id"),
    ("execute-step-prompt", {"entry_point": "--help"}, "entry_point"),
    ("execute-step-prompt", {"program_json_path": "/etc/passwd"}, "program_json_path"),
    ("execute-step-prompt", {"saved_program_json_path": "a.json"}, "saved_program_json_path"),
    ("execute-step-prompt", {"mutation": {"kind": "prompt"}}, "mutation"),
    ("execute-step-prompt", {"ref": "trunk"}, "ref"),
    ("execute-step-prompt", {"repo_url": "https://example.org/a/b"}, "repo_url"),
    ("execute-step-prompt", {"options": {"seed": 1}}, "options.seed"),
    ("execute-step-code", {"change_request": None}, "change_request"),
    ("execute-step-code", {"diff": "--- a"}, "change_request"),
    ("execute-step-code", {"client_id": None, "parent_program_id": None}, "parent_program_id"),
    ("rollouts-batch", {"agent_id": None}, "agent_id"),
    ("rollouts-batch", {"client_id": "another"}, "client_id"),
    ("rollouts-batch", {"agent_version_id": "of_another_line"}, "agent_version_id"),
    ("rollouts-batch", {"candidate": {"a": "b"}}, "system_prompt"),
    ("rollouts-batch", {"tasks": []}, "tasks"),
    ("rollouts-batch", {"tasks": [{"task_id": "a"}]}, "tasks.0.user_message"),
    ("rollouts-batch", {"tasks": [{"user_message": "a", "row": {}}]}, "tasks.0.row"),
    ("rollouts-batch", {"tasks": [{"user_message": "a", "context": 5}]}, "tasks.0.context"),
    ("rollouts-batch", {"tasks": [{"task_id": "a", "user_message": "a"}] * 2}, "task_id"),
    ("rollouts-batch", {"config": {"parallelism": 0}}, "config.parallelism"),
    ("rollouts-batch", {"config": {"model_id": ""}}, "config.model_id"),
    ("rollouts-batch", {"parallelism": 5}, "parallelism"),
]


async def test_a_wrong_missing_or_doubled_field_is_named(
    editor: Caller, acme: TenantRecords, program: str, tmp_path: Path
) -> None:
    client_id = (await editor("POST", "/connect-git", {"repo_url": program})).json()["client_id"]
    for id_, line in (("parent", "line"), ("of_another_line", "other")):
        texts = {"judge.predict": "b"}
        acme.insert(Program(tenant="acme", id=id_, line=line, job_id="j", repo_url=program, texts=texts))
    other = tmp_path / "other"
    commit(other, {"program.py": "print('two')\n"})
    others = (await editor("POST", "/connect-git", {"repo_url": str(other)})).json()["client_id"]
    for name, fields, field in WRONG:
        request = payload(name, client_id=client_id, program_id="parent")
        given = {key: others if value == "another" else value for key, value in fields.items()}
        body = {key: value for key, value in {**request["body"], **given}.items() if value is not None}
        if "diff" in fields:
            body["change_request"] = "Strip."
        refused = await editor("POST", request["path"], body)
        assert refused.status_code == 422, (name, fields, refused.text)
        assert refused.json()["field"] == field, (name, fields, refused.text)
        assert field.rpartition(".")[2] in refused.json()["detail"]
    for name, absent in (("execute-step-prompt", "parent_program_id"), ("rollouts-batch", "agent_id")):
        request = payload(name, client_id=client_id, program_id="absent")
        refused = await editor("POST", request["path"], request["body"])
        assert (refused.status_code, refused.json()["field"]) == (404, absent)
