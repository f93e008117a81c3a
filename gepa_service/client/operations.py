"""The operations of the API, a method each. Written by scripts/service_client.py: do not edit."""

from typing import Literal

from gepa_client.certificate.certificate import Certificate
from gepa_service.api.routes.audit import AuditPage
from gepa_service.api.routes.deliver import Delivered, DeliverRequest
from gepa_service.api.routes.execute_step import StepPage
from gepa_service.api.routes.github import ConfirmRequest, InstallationView, InstallUrl
from gepa_service.api.routes.job_events import EventPage, LogPage
from gepa_service.api.routes.jobs import BudgetChange, JobPage, JobView, OptimizeRequest, Submitted
from gepa_service.api.routes.keys import KeyPage, KeyRequest, KeyView, NewKey
from gepa_service.api.routes.members import MemberPage, MemberRequest, MemberView
from gepa_service.api.routes.payloads import BatchAccepted, BatchView, RolloutsRequest, StepRequest, StepView
from gepa_service.api.routes.programs import ActivePage, PromoteRequest, PromotionView, VersionPage, VersionView
from gepa_service.api.routes.repositories import Connected, ConnectRequest, RepositoryPage
from gepa_service.api.routes.rollouts import BatchPage
from gepa_service.api.routes.secrets import SecretPage, SecretRequest
from gepa_service.api.routes.usage import UsageView
from gepa_service.api.routes.webhooks import DeliveryPage, DeliveryView, RegisteredWebhook, WebhookPage, WebhookRequest
from gepa_service.client.connection import Connection, quoted


class Operations(Connection):
    """One request for each method. Raises `ServiceProblem` and `ServiceUnreachable`."""

    def health(self) -> dict[str, str]:
        """Report that the process answers."""
        return self._model(dict[str, str], "GET", "/health")

    def ready(self) -> dict[str, str]:
        """Report whether both databases answer."""
        return self._model(dict[str, str], "GET", "/ready")

    def connect_git(self, body: ConnectRequest, *, idempotency_key: str | None = None) -> Connected:
        """Connect a repository, whose access is tested at once."""
        return self._model(Connected, "POST", "/connect-git", body=body, idempotency_key=idempotency_key)

    def repositories(self, *, after: str | None = None, limit: int | None = None) -> RepositoryPage:
        """List the connected repositories, the newest first."""
        return self._model(RepositoryPage, "GET", "/repositories", query={"after": after, "limit": limit})

    def delete_repository(
        self, client_id: str, *, force: bool | None = None, idempotency_key: str | None = None
    ) -> None:
        """Delete a repository with its jobs, batches, steps and versions, which must have ended."""
        self._bytes(
            "DELETE", f"/repositories/{quoted(client_id)}", query={"force": force}, idempotency_key=idempotency_key
        )

    def install(self, *, idempotency_key: str | None = None) -> InstallUrl:
        """Return the page on which a user of GitHub installs the App for repositories of theirs."""
        return self._model(InstallUrl, "POST", "/github/install", idempotency_key=idempotency_key)

    def confirm(self, body: ConfirmRequest, *, idempotency_key: str | None = None) -> InstallationView:
        """Bind an installation to the caller's tenant."""
        return self._model(
            InstallationView, "POST", "/github/installations", body=body, idempotency_key=idempotency_key
        )

    def optimize(self, body: OptimizeRequest, *, idempotency_key: str | None = None) -> Submitted:
        """Submit an optimization."""
        return self._model(Submitted, "POST", "/optimize", body=body, idempotency_key=idempotency_key)

    def jobs(
        self,
        *,
        after: str | None = None,
        limit: int | None = None,
        status: list[Literal["pending", "running", "paused", "completed", "failed", "cancelled"]] | None = None,
    ) -> JobPage:
        """List jobs, the newest first."""
        return self._model(JobPage, "GET", "/jobs", query={"after": after, "limit": limit, "status": status})

    def job(self, job_id: str) -> JobView:
        """Return a job."""
        return self._model(JobView, "GET", f"/job/{quoted(job_id)}")

    def change_budget(self, job_id: str, body: BudgetChange, *, idempotency_key: str | None = None) -> JobView:
        """Change the budget of a job that has not ended."""
        return self._model(JobView, "PATCH", f"/job/{quoted(job_id)}", body=body, idempotency_key=idempotency_key)

    def cancel(self, job_id: str, *, idempotency_key: str | None = None) -> JobView:
        """End a job for good."""
        return self._model(JobView, "POST", f"/job/{quoted(job_id)}/cancel", idempotency_key=idempotency_key)

    def delete_job(self, job_id: str, *, idempotency_key: str | None = None) -> None:
        """Delete a job that has ended, with its run and its log."""
        self._bytes("DELETE", f"/job/{quoted(job_id)}", idempotency_key=idempotency_key)

    def pause(self, job_id: str, *, idempotency_key: str | None = None) -> JobView:
        """Stop a job."""
        return self._model(JobView, "POST", f"/job/{quoted(job_id)}/pause", idempotency_key=idempotency_key)

    def resume(self, job_id: str, *, idempotency_key: str | None = None) -> JobView:
        """Continue a paused job, once there is room in the queue."""
        return self._model(JobView, "POST", f"/job/{quoted(job_id)}/resume", idempotency_key=idempotency_key)

    def events(self, job_id: str, *, after: str | None = None) -> EventPage:
        """Return the events of a job in pages of about a megabyte."""
        return self._model(EventPage, "GET", f"/job/{quoted(job_id)}/events", query={"after": after})

    def logs(self, job_id: str, *, after: str | None = None, limit: int | None = None) -> LogPage:
        """Return what the attempts and processes of a job, batch or step printed, oldest first."""
        return self._model(LogPage, "GET", f"/job/{quoted(job_id)}/logs", query={"after": after, "limit": limit})

    def report(self, job_id: str, *, accept: str = "text/html") -> bytes:
        """Return the report of a job that has ended, a page."""
        return self._bytes("GET", f"/job/{quoted(job_id)}/report", accept=accept)

    def certificate(self, job_id: str) -> Certificate:
        """Return whether the job improved the program, derived from the record of its run."""
        return self._model(Certificate, "GET", f"/job/{quoted(job_id)}/certificate")

    def programs(
        self,
        *,
        after: str | None = None,
        limit: int | None = None,
        line: str | None = None,
        job_id: str | None = None,
        client_id: str | None = None,
        verdict: Literal["improved", "no difference", "worse"] | None = None,
    ) -> VersionPage:
        """List versions, the newest first."""
        return self._model(
            VersionPage,
            "GET",
            "/programs",
            query={
                "after": after,
                "limit": limit,
                "line": line,
                "job_id": job_id,
                "client_id": client_id,
                "verdict": verdict,
            },
        )

    def active(self, *, after: str | None = None, limit: int | None = None, line: str | None = None) -> ActivePage:
        """List the active version of each program, or of the one that `line` names."""
        return self._model(ActivePage, "GET", "/programs/active", query={"after": after, "limit": limit, "line": line})

    def program(self, program_id: str) -> VersionView:
        """Return a version."""
        return self._model(VersionView, "GET", f"/program/{quoted(program_id)}")

    def promote(self, program_id: str, body: PromoteRequest, *, idempotency_key: str | None = None) -> PromotionView:
        """Make a version the active one of its program."""
        return self._model(
            PromotionView, "POST", f"/program/{quoted(program_id)}/promote", body=body, idempotency_key=idempotency_key
        )

    def rollback(self, program_id: str, *, idempotency_key: str | None = None) -> PromotionView:
        """Make the version active again that was so before this one, which is the active one now."""
        return self._model(
            PromotionView, "POST", f"/program/{quoted(program_id)}/rollback", idempotency_key=idempotency_key
        )

    def deliver(self, program_id: str, body: DeliverRequest, *, idempotency_key: str | None = None) -> Delivered:
        """Push the version as a branch and open a pull request, or return a patch."""
        return self._model(
            Delivered, "POST", f"/program/{quoted(program_id)}/deliver", body=body, idempotency_key=idempotency_key
        )

    def submit(self, body: RolloutsRequest, *, idempotency_key: str | None = None) -> BatchAccepted:
        """Submit a batch: each task is run by the program in a sandbox, with the texts of one candidate."""
        return self._model(
            BatchAccepted, "POST", "/api/internal/rollouts/batch", body=body, idempotency_key=idempotency_key
        )

    def batches(self, *, after: str | None = None, limit: int | None = None) -> BatchPage:
        """List batches, the newest first."""
        return self._model(BatchPage, "GET", "/api/internal/rollouts/batch", query={"after": after, "limit": limit})

    def batch(self, batch_id: str, *, after: str | None = None, limit: int | None = None) -> BatchView:
        """Return the progress of a batch, and its results in the order in which they came."""
        return self._model(
            BatchView, "GET", f"/api/internal/rollouts/batch/{quoted(batch_id)}", query={"after": after, "limit": limit}
        )

    def delete_batch(self, batch_id: str, *, idempotency_key: str | None = None) -> None:
        """Delete a batch that has ended, with its results and its log."""
        self._bytes("DELETE", f"/api/internal/rollouts/batch/{quoted(batch_id)}", idempotency_key=idempotency_key)

    def cancel_batch(self, batch_id: str, *, idempotency_key: str | None = None) -> BatchAccepted:
        """Cancel a batch."""
        return self._model(
            BatchAccepted,
            "POST",
            f"/api/internal/rollouts/batch/{quoted(batch_id)}/cancel",
            idempotency_key=idempotency_key,
        )

    def execute(self, body: StepRequest, *, idempotency_key: str | None = None) -> StepView:
        """Make a version by one mutation, run the examples with it, and return outputs, traces, branch and program."""
        return self._model(StepView, "POST", "/execute_step", body=body, idempotency_key=idempotency_key)

    def steps(self, *, after: str | None = None, limit: int | None = None) -> StepPage:
        """List steps, the newest first."""
        return self._model(StepPage, "GET", "/execute_step", query={"after": after, "limit": limit})

    def step(self, step_id: str) -> StepView:
        """Return a step."""
        return self._model(StepView, "GET", f"/execute_step/{quoted(step_id)}")

    def delete_step(self, step_id: str, *, idempotency_key: str | None = None) -> None:
        """Delete a step that has ended, with its log."""
        self._bytes("DELETE", f"/execute_step/{quoted(step_id)}", idempotency_key=idempotency_key)

    def register(self, body: WebhookRequest, *, idempotency_key: str | None = None) -> RegisteredWebhook:
        """Register a webhook."""
        return self._model(RegisteredWebhook, "POST", "/webhooks", body=body, idempotency_key=idempotency_key)

    def webhooks(self, *, after: str | None = None, limit: int | None = None) -> WebhookPage:
        """List webhooks."""
        return self._model(WebhookPage, "GET", "/webhooks", query={"after": after, "limit": limit})

    def delete(self, webhook_id: str, *, idempotency_key: str | None = None) -> None:
        """Delete a webhook."""
        self._bytes("DELETE", f"/webhooks/{quoted(webhook_id)}", idempotency_key=idempotency_key)

    def ping(self, webhook_id: str, *, idempotency_key: str | None = None) -> DeliveryView:
        """Send the event `ping`, to test the receiver."""
        return self._model(
            DeliveryView, "POST", f"/webhooks/{quoted(webhook_id)}/ping", idempotency_key=idempotency_key
        )

    def deliveries(self, webhook_id: str, *, after: str | None = None, limit: int | None = None) -> DeliveryPage:
        """List what was sent to a webhook, and what will be, the newest first."""
        return self._model(
            DeliveryPage, "GET", f"/webhooks/{quoted(webhook_id)}/deliveries", query={"after": after, "limit": limit}
        )

    def create_key(self, body: KeyRequest, *, idempotency_key: str | None = None) -> NewKey:
        """Make a key, which is shown in this response alone."""
        return self._model(NewKey, "POST", "/keys", body=body, idempotency_key=idempotency_key)

    def keys(self, *, after: str | None = None, limit: int | None = None) -> KeyPage:
        """List the keys, revoked and expired ones too."""
        return self._model(KeyPage, "GET", "/keys", query={"after": after, "limit": limit})

    def delete_key(self, key_id: str, *, idempotency_key: str | None = None) -> KeyView:
        """Revoke a key, at once."""
        return self._model(KeyView, "DELETE", f"/keys/{quoted(key_id)}", idempotency_key=idempotency_key)

    def add_member(self, body: MemberRequest, *, idempotency_key: str | None = None) -> MemberView:
        """Add a member."""
        return self._model(MemberView, "POST", "/members", body=body, idempotency_key=idempotency_key)

    def members(self, *, after: str | None = None, limit: int | None = None) -> MemberPage:
        """List the members."""
        return self._model(MemberPage, "GET", "/members", query={"after": after, "limit": limit})

    def delete_member(self, member_id: str, *, idempotency_key: str | None = None) -> None:
        """Remove a member, whose tokens are refused at once."""
        self._bytes("DELETE", f"/members/{quoted(member_id)}", idempotency_key=idempotency_key)

    def put_secret(self, name: str, body: SecretRequest, *, idempotency_key: str | None = None) -> None:
        """Write a secret, over one of this name."""
        self._bytes("PUT", f"/secrets/{quoted(name)}", body=body, idempotency_key=idempotency_key)

    def secrets(self, *, after: str | None = None, limit: int | None = None) -> SecretPage:
        """List the secrets, without their values."""
        return self._model(SecretPage, "GET", "/secrets", query={"after": after, "limit": limit})

    def delete_secret(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Delete a secret."""
        self._bytes("DELETE", f"/secrets/{quoted(name)}", idempotency_key=idempotency_key)

    def usage(self) -> UsageView:
        """Return what the tenant has used."""
        return self._model(UsageView, "GET", "/usage")

    def audit(self, *, after: str | None = None, limit: int | None = None, actor: str | None = None) -> AuditPage:
        """List the writes of all callers of the tenant."""
        return self._model(AuditPage, "GET", "/audit", query={"after": after, "limit": limit, "actor": actor})
