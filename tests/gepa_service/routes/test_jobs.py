"""Submitting, listing and controlling jobs."""

from typing import Any

from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.model.work import Work
from gepa_service.records import TenantRecords
from gepa_service.service import Service
from gepa_service.webhooks import Webhook, WebhookDelivery
from tests.gepa_service.routes.conftest import Caller

LEAST = {"max_metric_calls": 30}


async def submitted(caller: Caller, repo_url: str, /, **fields: Any) -> str:
    answered = await caller("POST", "/optimize", {"repo_url": repo_url, **LEAST, **fields})
    assert answered.status_code == 202, answered.text
    assert answered.json()["status"] == "pending"
    found: str = answered.json()["job_id"]
    return found


async def test_the_fields_of_a_request_become_the_settings_of_its_job(
    editor: Caller, program: str, acme: TenantRecords
) -> None:
    job_id = await submitted(
        editor,
        program,
        ref="trunk",
        program="program.py",
        metric="metrics.score",
        saved_program_json_path="saved.json",
        trainset=[{"text": "a"}],
        valset_path="data/val.jsonl",
        reflection_lm="openai/gpt-5",
        num_threads=8,
        sandboxes=2,
        max_cost_usd=1.5,
        options={"seed": 3, "server_args": "--workers 2", "pass_env": ["DATABASE_KEY"]},
    )
    job = acme.get(Work, job_id)
    assert job is not None
    flags = "--workers 2 --program program.py --kind dspy --metric metrics.score --saved-program-json-path saved.json"
    assert job.settings == {
        "repo": program,
        "ref": "trunk",
        "trainset": [{"text": "a"}],
        "reflection_lm": "openai/gpt-5",
        "concurrency": 8,
        "sandboxes": 2,
        "max_cost_usd": 1.5,
        "max_metric_calls": 30,
        "seed": 3,
        "pass_env": ["DATABASE_KEY"],
        "server_args": f"{flags} --datasets val=data/val.jsonl",
    }
    assert (job.created_by, job.repo_url, job.ref) == ("key:acme-editor", program, "trunk")


async def test_a_job_of_a_connected_repository_names_it(editor: Caller, program: str) -> None:
    client_id = (await editor("POST", "/connect-git", {"repo_url": program})).json()["client_id"]
    by_id = await editor("POST", "/optimize", {"client_id": client_id, **LEAST})
    for job_id in (by_id.json()["job_id"], await submitted(editor, program)):
        assert (await editor("GET", f"/job/{job_id}")).json()["client_id"] == client_id


WRONG: list[tuple[dict[str, Any], str | None, str]] = [
    ({"options": {"store": "/etc/passwd"}}, None, "`store` is not given here"),
    ({"options": {"url": ["http://127.0.0.1"]}}, None, "sandboxes of its repository"),
    ({"options": {"max_metric_calls": 5}}, None, "same setting"),
    ({"options": {"reflection_prompt_template": "@/etc/passwd"}}, "options.reflection_prompt_template", "not read"),
    ({"options": {"reflection_prompt_template": {"a": "@/etc/passwd"}}}, None, "not read"),
    ({"options": {"reflection_prompt_template": "none"}}, "options.reflection_prompt_template", "lacks"),
    ({"options": {"allow_hosts": ["8.0.0.0/6"]}}, "options.allow_hosts", "not public"),
    ({"options": {"build_hosts": ["169.254.169.254"]}}, "options.build_hosts", "not public"),
    ({"options": {"server_args": "'open"}}, "options.server_args", "not flags"),
    ({"options": {"sandbox_memory_mb": 10**6}}, "options.sandbox_memory_mb", "at most"),
    (
        {"options": {"model_providers": {"own": {"base_url": "https://10.0.0.1/v1"}}}},
        "options.model_providers",
        "not a public host",
    ),
    ({"options": {"model_providers": {"o": {"base_url": "https://a", "key_env": "PATH"}}}}, None, "name of a secret"),
    ({"reflection_lm": "x/y", "options": {"reflection_lm_kwargs": {"f": [{"api_key": "sk"}]}}}, None, "secret"),
    ({"reflection_lm": "x/y", "options": {"reflection_lm_kwargs": {"api_base": "http://a"}}}, None, "provider"),
    ({"options": {"pass_env": ["LD_PRELOAD"]}}, "options.pass_env", "cannot be the name of a secret"),
    ({"options": {"secret_headers": ["a.com X=PATH"]}}, "options.pass_env", "cannot be the name of a secret"),
    ({"options": {"secret_headers": ["10.0.0.1 X=KEY"]}}, "options.secret_headers", "not a public host"),
    ({"reflection_lm": "openai/"}, "reflection_lm", "PROVIDER/MODEL"),
    ({"trainset_path": "../rows.jsonl"}, "trainset_path", "in the repository"),
    ({"trainset_path": "https://x/rows.jsonl"}, "trainset_path", "in the repository"),
    ({"trainset_path": "rows.txt"}, "trainset_path", "are read from"),
    ({"trainset_path": "rows.jsonl", "trainset": [{}]}, None, "trainset_path"),
    ({"max_metric_calls": None}, "max_metric_calls", "nothing would end"),
    ({"ref": "--upload-pack=date"}, "ref", "give a branch"),
    ({"ref": "a..b"}, "ref", "give a branch"),
    ({"program": "a\0b"}, None, "program"),
    ({"program": "--help"}, None, "program"),
    ({"client_id": "client_1"}, None, "one of"),
    ({"unknown": 1}, None, "unknown"),
    ({"repo_url": "https://x.invalid/o/r"}, "repo_url", "not known"),
]


async def test_a_wrong_field_is_refused_and_named(editor: Caller, program: str) -> None:
    for fields, field, words in WRONG:
        refused = await editor("POST", "/optimize", {"repo_url": program, **LEAST, **fields})
        assert refused.status_code == 422, refused.text
        assert words in refused.text
        if field is not None:
            assert refused.json()["field"] == field
    assert (await editor("GET", "/jobs")).json()["items"] == []


async def test_jobs_are_listed_in_pages_and_by_status(editor: Caller, program: str) -> None:
    made = [await submitted(editor, program, options={"sandbox_memory_mb": 16_384}) for _ in range(3)]
    await editor("POST", f"/job/{made[0]}/cancel")
    first = (await editor("GET", "/jobs?limit=2")).json()
    rest = (await editor("GET", f"/jobs?limit=2&after={first['next']}")).json()
    assert [each["job_id"] for each in first["items"] + rest["items"]] == made[::-1]
    cancelled = (await editor("GET", "/jobs?status=cancelled&status=failed")).json()
    assert [each["job_id"] for each in cancelled["items"]] == made[:1]
    for query in ("status=lost", "limit=0", "limit=1000", "after=" + "x" * 100, "after=a%00b"):
        assert (await editor("GET", f"/jobs?{query}")).status_code == 422, query


async def test_a_pending_job_is_paused_resumed_and_cancelled(editor: Caller, program: str, acme: TenantRecords) -> None:
    events = ("job.paused", "job.cancelled")
    acme.insert(Webhook(tenant="acme", id="w", url="https://x", events=events, created_by="k"))
    made = await editor("POST", "/optimize", {"repo_url": program, "options": {"auto": "light"}})
    job_id = made.json()["job_id"]
    assert (await editor("POST", f"/job/{job_id}/pause")).json()["status"] == "paused"
    resumed = (await editor("POST", f"/job/{job_id}/resume")).json()
    assert (resumed["status"], resumed["reason"]) == ("pending", None)
    for budget in ({}, {"max_metric_calls": -1}, {"seed": 1}, {"max_cost_usd": "x"}):
        assert (await editor("PATCH", f"/job/{job_id}", budget)).status_code == 422
    limits = {"max_metric_calls": 99, "max_cost_usd": 2}
    changed = (await editor("PATCH", f"/job/{job_id}", {**limits, "max_iterations": 7})).json()
    assert {name: changed[name] for name in (*limits, "total_iterations")} == {**limits, "total_iterations": 7}
    assert "auto" not in (await editor("GET", f"/job/{job_id}")).json()["settings"], "it limits the same"
    ended = (await editor("POST", f"/job/{job_id}/cancel")).json()
    assert (ended["status"], ended["wanted"]) == ("cancelled", "cancel")
    assert ended["completed_at"] is not None
    assert tuple(each.event for each in acme.page(WebhookDelivery)) == events
    for method, path in (("POST", "/pause"), ("POST", "/resume"), ("PATCH", "")):
        refused = await editor(method, f"/job/{job_id}{path}", LEAST if method == "PATCH" else None)
        assert refused.status_code == 409
        assert "cancelled" in refused.json()["detail"]


async def test_work_beyond_a_quota_is_refused_with_the_quota_and_when_to_try_again(
    editor: Caller, program: str, service: Service
) -> None:
    quotas = Quotas(jobs_queued=1, sandboxes=2)
    tenant = Tenant(tenant=TENANTS, id="acme", name="acme", quotas=quotas)
    service.records.insert(tenant)
    body = {"repo_url": program, **LEAST}
    wide = await editor("POST", "/optimize", {**body, "sandboxes": 3})
    assert (wide.status_code, wide.json()["field"], wide.json()["quota"]) == (422, "sandboxes", "sandboxes")
    tasks = {"repo_url": program, "tasks": [{"row": {}}], "options": {"sandboxes": 3}}
    assert (await editor("POST", "/api/internal/rollouts/batch", tasks)).status_code == 422
    job_id = await submitted(editor, program, sandboxes=2)
    queued = await editor("POST", "/optimize", body)
    assert (queued.status_code, queued.json()["quota"], queued.headers["Retry-After"]) == (429, "jobs_queued", "60")
    await editor("POST", f"/job/{job_id}/cancel")
    await submitted(editor, program)
    service.records.replace(tenant.model_copy(update={"quotas": Quotas(usd_per_month=0.0)}))
    for path, asked in (
        ("/optimize", body),
        ("/api/internal/rollouts/batch", {"repo_url": program, "tasks": [{"row": {}}]}),
    ):
        spent = await editor("POST", path, asked)
        assert (spent.status_code, spent.json()["quota"]) == (429, "usd_per_month")
        assert spent.headers["Retry-After"] == "3600"


async def test_a_paused_job_is_resumed_only_if_there_is_room_among_those_that_wait(
    editor: Caller, program: str, service: Service
) -> None:
    service.records.insert(Tenant(tenant=TENANTS, id="acme", name="acme", quotas=Quotas(jobs_queued=1)))
    paused = await submitted(editor, program)
    assert (await editor("POST", f"/job/{paused}/pause")).json()["status"] == "paused"
    other = await submitted(editor, program)
    refused = await editor("POST", f"/job/{paused}/resume")
    assert (refused.status_code, refused.json()["quota"]) == (429, "jobs_queued"), refused.text
    assert int(refused.headers["Retry-After"]) > 0
    assert (await editor("GET", f"/job/{paused}")).json()["status"] == "paused"
    assert (await editor("POST", f"/job/{other}/resume")).status_code == 200, "it waits already"
    await editor("POST", f"/job/{other}/cancel")
    job = service.records.get(Work, "acme", paused)
    assert job is not None
    service.records.replace(job.model_copy(update={"wanted": "run"}))  # as if a limit had paused it
    assert (await editor("POST", f"/job/{paused}/resume")).json()["status"] == "pending"
