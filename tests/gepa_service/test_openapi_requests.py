"""Requests that are generated from the OpenAPI document get no 500, and no status or body that it does not describe."""

import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gepa_service.api.app import create_app
from gepa_service.api.app_state import Service
from gepa_service.api.routes.job_events import EventPage
from gepa_service.auth.principal import Principal
from gepa_service.model.job import Job
from gepa_service.model.program_version import Program, Repository
from gepa_service.model.rollouts import ProgramWork, TaskResult, task_result_id
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.model.webhook import Webhook
from gepa_service.records.open_records import open_records
from gepa_service.repositories.github_installations import GitHub, GitHubSettings
from gepa_service.repositories.policy import RepositoryPolicy
from gepa_service.secrets.master_key import MasterKey
from gepa_service.secrets.vault import Vault

if TYPE_CHECKING:
    import schemathesis

LONG_S = float(os.environ.get("EVOLVERPC_GENERATED_REQUESTS_S", "600"))
SHORT_EXAMPLES = 3
LARGE = 10**9
EVENT_STREAM = "text/event-stream"
"""A body of events, for which OpenAPI 3.1 has no schema: their framing is checked, and each against the model."""

NAMED = {"reset", "end", "revoked"}
EVENT_ID = re.compile(r"[0-9a-f]+-[0-9]+")


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


def events_in(body: str) -> int:
    """Return how many events a whole stream has; fail if it is not framed as server-sent events.

    See https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.
    """
    assert body.endswith("\n\n"), "the last event is not complete"
    assert "\r" not in body
    events = [block for block in body[:-2].split("\n\n") if not block.startswith(":")]
    ids = []
    for block in events:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        assert len(fields) == len(block.split("\n")), f"a field is repeated: {block[:200]}"
        if "event" in fields:
            assert (fields.keys(), fields["data"]) == ({"event", "data"}, "{}"), block[:200]
            assert fields["event"] in NAMED, block[:200]
            continue
        assert fields.keys() == {"id", "data"}, block[:200]
        assert EVENT_ID.fullmatch(fields["id"]), block[:200]
        page = {"events": [orjson.loads(fields["data"])], "next": fields["id"], "reset": False, "complete": False}
        EventPage.model_validate(page)
        ids.append(int(fields["id"].partition("-")[2]))
    assert ids == sorted(set(ids)), "an event is repeated, or out of order"
    return len(events)


def schema_of(service: Service) -> "schemathesis.BaseSchema":
    """The operations of the document; it is imported here, as every process of the tests imports this module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its imports
        import schemathesis

    return schemathesis.openapi.from_asgi("/openapi.json", create_app(service))


def check_response(case: "schemathesis.Case", response: "schemathesis.Response") -> int:
    """Check a response against the document; return how many events of a stream it holds."""
    from schemathesis.specs.openapi import checks as given

    found = 0
    checks = [given.status_code_conformance, given.content_type_conformance]
    if response.headers.get("content-type", [""])[0].startswith(EVENT_STREAM):
        assert response.status_code == 200
        found = events_in(response.text)
    else:
        checks.append(given.response_schema_conformance)
    case.validate_response(response, checks=checks)
    return found


def checked(service: Service, examples: int, until: Callable[[], bool]) -> int:
    """Send generated requests of every operation; return how many were sent."""
    schema = schema_of(service)
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
            check_response(case, response)

        send()

    for result in schema.get_all_operations():
        if until():
            break
        check(result.ok())
    return sent


def test_every_stream_of_the_document_is_framed_as_server_sent_events(service: Service) -> None:
    schema = schema_of(service)
    found = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        if EVENT_STREAM in operation.definition.raw["responses"].get("200", {}).get("content", {}):
            case = operation.Case(path_parameters={"job_id": "known"})
            response = case.call(headers={"Authorization": "Bearer owner", "Last-Event-ID": "0-1"})
            assert response.headers["content-type"][0].startswith(EVENT_STREAM)
            found[operation.path] = check_response(case, response)
    assert found.keys() == {"/job/{job_id}/stream"}
    assert found["/job/{job_id}/stream"] >= 3, "a reset, the job, and the end"


@pytest.mark.timeout(240)
def test_generated_requests_get_documented_responses(service: Service) -> None:
    assert checked(service, SHORT_EXAMPLES, lambda: False) > 100


@pytest.mark.long
@pytest.mark.timeout(LONG_S + 300)
def test_generated_requests_get_documented_responses_for_ten_minutes(service: Service) -> None:
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        checked(service, 40, lambda: time.monotonic() >= until)
