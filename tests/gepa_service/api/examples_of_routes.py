"""One example request for each route, by `METHOD PATH`, and the resources that these requests name.

A new route needs a line in `EXAMPLES`. If it names a resource of a new kind, it also needs a maker in `RESOURCES`,
which puts `MARKER` into every text of what it makes.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gepa_client.errors import RunExists
from gepa_client.journal.store import open_store
from gepa_service.auth.keys import make_key
from gepa_service.auth.recognize import make_member
from gepa_service.model.program_version import Promotion, Repository
from gepa_service.model.tenant import AuditEntry
from gepa_service.model.work import LogChunk, LogLine, ProgramWork, Status, TaskResult, Work, task_result_id
from gepa_service.records import RecordExists, new_id, now
from gepa_service.service import Service
from gepa_service.webhooks import Webhook, WebhookDelivery
from tests.gepa_client.journal.sample_runs import run
from tests.gepa_service import page_records
from tests.gepa_service.api.conftest import running

MARKER = "marker-of-a-foreign-tenant"
"""In the records of the tenant beta alone."""

ABSENT = "absent_resource"


@dataclass(frozen=True)
class Example:
    """A request that a permitted caller makes of its own resource, and the status of its response.

    `resource`: the kind of the resource that it names: as its path's first parameter, or in the body. `body`: what is
    sent, or a function of the resource's id. `params`: other parameters of the path. `upserts`: the resource is made if
    it is absent, so that none is refused.
    """

    status: int = 200
    resource: str | None = None
    body: Any = None
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    upserts: bool = False
    params: Mapping[str, str] = field(default_factory=dict)

    def path(self, template: str, id_: str) -> str:
        """The path of a request for a resource."""
        for name, value in self.params.items():
            template = template.replace(f"{{{name}}}", value)
        return re.sub(r"\{[^}]*\}", id_, template)

    def content(self, id_: str) -> Any:
        """The body of a request for a resource."""
        return self.body(id_) if callable(self.body) else self.body


def text_for(tenant: str) -> str:
    return MARKER if tenant == "beta" else "text"


def _job(status: Status) -> Callable[[Service, str], str]:
    def make(service: Service, tenant: str) -> str:
        text = text_for(tenant)
        made = page_records.job(tenant, status, lambda: text)
        service.records.insert(made.model_copy(update={"failure": {"message": text}}))
        with contextlib.closing(open_store(service.journals)) as store:
            store.create(run(made.id, name=text, reason=text, status=status))
        return made.id

    return make


def _repository(service: Service, tenant: str) -> str:
    text = text_for(tenant)
    made = Repository(tenant=tenant, id=new_id("client"), repo_url=f"https://example.org/{text}", detail=text)
    service.records.insert(made)
    return made.id


def _key(service: Service, tenant: str) -> str:
    _, made = make_key(tenant, text_for(tenant), "viewer")
    service.records.insert(made)
    return made.id


def _member(service: Service, tenant: str) -> str:
    made = make_member(tenant, "https://issuer.example", text_for(tenant) + new_id("s"), "viewer")
    service.records.insert(made)
    return made.id


def _secret(service: Service, tenant: str) -> str:
    name = new_id("SECRET")
    assert service.vault is not None
    service.vault.put(tenant, name, text_for(tenant), [{"host": f"{text_for(tenant)}.example.org"}])
    return name


def _audit_entry(service: Service, tenant: str) -> str:
    text = text_for(tenant)
    made = AuditEntry(tenant=tenant, id=new_id("audit"), actor=text, action=text, resource=text, status=200)
    service.records.insert(made)
    return made.id


def _log(service: Service, tenant: str) -> str:
    made = new_id("log")
    line = LogLine(at=now(), source="attempt", text=text_for(tenant))
    service.records.insert(LogChunk(tenant=tenant, id=made, job_id=ABSENT, lines=(line,)))
    return made


def _program(service: Service, tenant: str) -> str:
    text = text_for(tenant)
    made = page_records.program(tenant, lambda: text, (text,))
    service.records.insert(made.model_copy(update={"verdict": "improved"}))
    return made.id


def _active(service: Service, tenant: str) -> str:
    made, line = _program(service, tenant), text_for(tenant)
    service.records.insert(Promotion(tenant=tenant, id=new_id("promotion"), line=line, program_id=made, actor=line))
    return made


def _job_of_token(service: Service, tenant: str) -> str:
    if tenant != "acme":
        return _job("running")(service, tenant)
    with contextlib.closing(open_store(service.journals)) as store, contextlib.suppress(RunExists):
        store.create(run("job_of_token"))
    return "job_of_token"


def _job_of_attempt(service: Service, tenant: str) -> str:
    if tenant != "acme":
        return _job("running")(service, tenant)
    with contextlib.suppress(RecordExists):
        service.records.insert(running("job_of_attempt"))
    return "job_of_attempt"


def _work(what: Literal["rollouts", "step"]) -> Callable[[Service, str], str]:
    def make(service: Service, tenant: str) -> str:
        text = text_for(tenant)
        made = Work(
            tenant=tenant,
            id=new_id("work"),
            what=what,
            repo_url=text,
            settings={"name": text},
            program=ProgramWork(candidate={"prompt": text}, tasks=({"task_id": text, "row": {"text": text}},)),
            result={"candidate": {"prompt": text}},
            reason=text,
            created_by=text,
        )
        service.records.insert(made)
        result = {"status": "ok", "score": 1.0, "output": text, "seconds": 0.1}
        done = TaskResult(tenant=tenant, id=task_result_id(made.id, 0), work_id=made.id, index=0, result=result)
        service.records.insert(done)
        return made.id

    return make


def _webhook(service: Service, tenant: str) -> str:
    text = text_for(tenant)
    made = Webhook(
        tenant=tenant, id=new_id("webhook"), url=f"https://example.org/{text}", events=("ping",), created_by=text
    )
    service.records.insert(made)
    sent = WebhookDelivery(
        tenant=tenant, id=new_id("delivery"), webhook_id=made.id, event="ping", payload={"text": text}
    )
    service.records.insert(sent)
    return made.id


RESOURCES: dict[str, Callable[[Service, str], str]] = {
    "pending job": _job("pending"),
    "paused job": _job("paused"),
    "ended job": _job("completed"),
    "job of the job token": _job_of_token,
    "job of the attempt token": _job_of_attempt,
    "log": _log,
    "program": _program,
    "active program": _active,
    "repository": _repository,
    "key": _key,
    "member": _member,
    "secret": _secret,
    "audit entry": _audit_entry,
    "batch": _work("rollouts"),
    "step": _work("step"),
    "webhook": _webhook,
}
"""Makes a resource of a tenant and returns its id."""

OPTIMIZE = {"program": "program.py", "trainset_path": "rows.jsonl", "reflection_lm": "openai/x", "max_metric_calls": 9}
STEP = {"mutation_type": "prompt", "candidate": {"prompt": "a"}, "wait_s": 0}
MEMBER = {"issuer": "https://issuer.example", "subject": "ann", "role": "viewer"}

EXAMPLES: dict[str, Example] = {
    "GET /": Example(),
    "GET /assets/{name}": Example(params={"name": "page.css"}),
    "POST /session": Example(401, body={"token": "no key"}),
    "GET /session": Example(),
    "DELETE /session": Example(204),
    "GET /session/ways": Example(),
    "GET /session/oidc": Example(403, query="?issuer=https://unknown.example"),
    "GET /session/oidc/callback/{place:path}": Example(403),
    "GET /openapi.json": Example(),
    "GET /health": Example(),
    "GET /ready": Example(),
    "GET /metrics": Example(401),
    "POST /connect-git": Example(422, body={"repo_url": "/no/repository/here"}),
    "GET /repositories": Example(),
    "DELETE /repositories/{client_id}": Example(204, "repository"),
    "POST /github/install": Example(409),
    "GET /github/callback": Example(409, query="?state=s&code=c&installation_id=1"),
    "POST /github/installations": Example(409, body={"confirmation": "c"}),
    "POST /github/webhook": Example(409, body={}, headers={"x-github-event": "push", "x-github-delivery": "d"}),
    "POST /optimize": Example(202, "repository", lambda id_: {"client_id": id_, **OPTIMIZE}),
    "GET /jobs": Example(),
    "GET /job/{job_id}": Example(200, "pending job"),
    "PATCH /job/{job_id}": Example(200, "pending job", {"max_metric_calls": 50}),
    "DELETE /job/{job_id}": Example(204, "ended job"),
    "POST /job/{job_id}/cancel": Example(200, "pending job"),
    "POST /job/{job_id}/pause": Example(200, "pending job"),
    "POST /job/{job_id}/resume": Example(200, "paused job"),
    "GET /job/{job_id}/stream": Example(200, "ended job"),
    "GET /job/{job_id}/events": Example(200, "ended job"),
    "GET /job/{job_id}/cell": Example(404, "ended job", query="?candidate=0&row=0"),
    "GET /job/{job_id}/text": Example(404, "ended job", query="?candidate=0&component=a"),
    "GET /job/{job_id}/proposal": Example(404, "ended job", query="?at=0"),
    "GET /job/{job_id}/explanation": Example(404, "ended job"),
    "GET /job/{job_id}/history": Example(200, "ended job"),
    "GET /job/{job_id}/logs": Example(200, "ended job"),
    "GET /job/{job_id}/report": Example(409, "ended job"),
    "GET /job/{job_id}/certificate": Example(409, "ended job"),
    "POST /job/{job_id}/attempt/begin": Example(200, "job of the attempt token", {}),
    "POST /job/{job_id}/attempt/report": Example(200, "job of the attempt token", {}),
    "POST /job/{job_id}/journal/{method}": Example(200, "job of the job token", {}, params={"method": "run"}),
    "GET /programs": Example(),
    "GET /programs/active": Example(),
    "GET /program/{program_id}": Example(200, "program"),
    "POST /program/{program_id}/promote": Example(200, "program", {}),
    "POST /program/{program_id}/rollback": Example(409, "program"),
    "POST /program/{program_id}/deliver": Example(200, "program", {"mode": "patch"}),
    "POST /api/internal/rollouts/batch": Example(
        202, "repository", lambda id_: {"client_id": id_, "tasks": [{"user_message": "a"}]}
    ),
    "GET /api/internal/rollouts/batch": Example(),
    "GET /api/internal/rollouts/batch/{batch_id}": Example(200, "batch"),
    "DELETE /api/internal/rollouts/batch/{batch_id}": Example(409, "batch"),
    "POST /api/internal/rollouts/batch/{batch_id}/cancel": Example(200, "batch"),
    "GET /execute_step": Example(),
    "POST /execute_step": Example(202, "repository", lambda id_: {"client_id": id_, **STEP}),
    "GET /execute_step/{step_id}": Example(200, "step"),
    "POST /execute_step/{step_id}/cancel": Example(200, "step"),
    "DELETE /execute_step/{step_id}": Example(409, "step"),
    "POST /webhooks": Example(422, body={"url": "https://10.0.0.1/hook", "events": ["ping"]}),
    "GET /webhooks": Example(),
    "DELETE /webhooks/{webhook_id}": Example(204, "webhook"),
    "POST /webhooks/{webhook_id}/ping": Example(202, "webhook"),
    "GET /webhooks/{webhook_id}/deliveries": Example(200, "webhook"),
    "GET /keys": Example(),
    "POST /keys": Example(201, body={"name": "ci", "role": "viewer"}),
    "DELETE /keys/{key_id}": Example(200, "key"),
    "GET /members": Example(),
    "POST /members": Example(201, body=MEMBER),
    "DELETE /members/{member_id}": Example(204, "member"),
    "GET /secrets": Example(),
    "PUT /secrets/{name}": Example(204, "secret", {"value": "value"}, upserts=True),
    "DELETE /secrets/{name}": Example(204, "secret"),
    "GET /usage": Example(),
    "GET /audit": Example(),
}
