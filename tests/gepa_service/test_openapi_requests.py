"""Requests that are generated from the OpenAPI document get no 500, and no status or body that it does not describe."""

import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gepa_service.api.app import create_app
from gepa_service.api.service import Service
from gepa_service.auth.principal import Principal
from gepa_service.model.job import Job
from gepa_service.model.program import Program, Repository
from gepa_service.model.rollouts import ProgramWork, TaskResult, task_result_id
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.model.webhook import Webhook
from gepa_service.records.open_records import open_records
from gepa_service.repositories.github import GitHub, GitHubSettings
from gepa_service.repositories.policy import RepositoryPolicy
from gepa_service.secrets.master_key import MasterKey
from gepa_service.secrets.vault import Vault

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its imports
    import schemathesis
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

LONG_S = float(os.environ.get("EVOLVERPC_GENERATED_REQUESTS_S", "600"))
SHORT_EXAMPLES = 6
LARGE = 10**9
EVENT_STREAM = "text/event-stream"
"""A body of events, for which OpenAPI 3.1 has no schema; what is in them is tested in `routes/test_job_events.py`."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    records = open_records(str(tmp_path / "records.db"))
    quotas = Quotas(requests_per_minute=LARGE, jobs_queued=LARGE, jobs_at_once=LARGE, sandboxes=1000)
    records.insert(Tenant(tenant=TENANTS, id="acme", name="acme", quotas=quotas))
    records.insert(Job(tenant="acme", id="known", repo_url="https://x/o/r", created_by="k", status="failed"))
    records.insert(Repository(tenant="acme", id="known", repo_url="https://example.invalid/o/r"))
    work = ProgramWork(tenant="acme", id="known", what="rollouts", repo_url="/x", settings={}, created_by="k")
    records.insert(work.model_copy(update={"tasks": ({"a": 1},), "status": "completed"}))
    result = {"status": "ok", "score": 1.0, "output": "x", "seconds": 0.1}
    records.insert(TaskResult(tenant="acme", id=task_result_id("known", 0), work_id="known", index=0, result=result))
    records.insert(
        Program(tenant="acme", id="known", line="l", job_id="known", repo_url="r", texts={"a": "b"}, verdict="improved")
    )
    records.insert(Webhook(tenant="acme", id="known", url="https://x/", events=("ping",), created_by="k"))
    app = GitHubSettings(
        app_id="1",
        slug="a",
        client_id="c",
        client_secret="s",
        key="k",
        webhook_secret="w",
        state_key=b"s" * 32,
        api="http://127.0.0.1:1",
        web="http://127.0.0.1:1",
    )
    yield Service(
        records=records,
        journals=str(tmp_path / "journals.db"),
        recognize=lambda token, _tenant=None: Principal("acme", "owner", "key:1") if token == "owner" else None,
        public_url="http://testserver",
        repositories=RepositoryPolicy(timeout_s=5),
        github=GitHub(app),
        webhook_key=b"w" * 32,
        vault=Vault(records, [MasterKey(b"m" * 32)]),
    )
    records.close()


def checked(service: Service, examples: int, until: Callable[[], bool]) -> int:
    """Send generated requests of every operation; return how many were sent."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(service))
    sent = 0

    def check(operation: "schemathesis.APIOperation") -> None:  # type: ignore[type-arg]
        @given(case=operation.as_strategy(), is_known=st.booleans(), has_key=st.integers(0, 9))
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate],
        )
        def send(case: "schemathesis.Case", is_known: bool, has_key: int) -> None:
            nonlocal sent
            if is_known and case.path_parameters:
                for name in case.path_parameters:
                    if name.endswith("_id"):
                        case.path_parameters[name] = "known"
            if isinstance(case.body, dict) and "wait_s" in case.body:
                case.body["wait_s"] = 0
            elif isinstance(case.body, dict) and operation.path == "/execute_step":
                case.body = {**case.body, "wait_s": 0}
            headers = {"Authorization": "Bearer owner"} if has_key else {}
            response = case.call(headers=headers)
            sent += 1
            assert response.status_code < 500 or response.status_code in (502, 503), (
                case.as_curl_command(),
                response.text,
            )
            checks = [status_code_conformance, content_type_conformance]
            if not response.headers.get("content-type", [""])[0].startswith(EVENT_STREAM):
                checks.append(response_schema_conformance)
            case.validate_response(response, checks=checks)

        send()

    for result in schema.get_all_operations():
        if until():
            break
        check(result.ok())
    return sent


@pytest.mark.timeout(240)
def test_generated_requests_get_documented_responses(service: Service) -> None:
    assert checked(service, SHORT_EXAMPLES, lambda: False) > 100


@pytest.mark.long
@pytest.mark.timeout(LONG_S + 300)
def test_generated_requests_get_documented_responses_for_ten_minutes(service: Service) -> None:
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        checked(service, 40, lambda: time.monotonic() >= until)
