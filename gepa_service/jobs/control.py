"""What a tenant asks of a job: to cancel, pause or resume it, or to change its budget. The worker acts on it."""

from collections.abc import Mapping

from gepa_client.journal.store import Store
from gepa_service.model.job import ENDED, Job
from gepa_service.records.record import now
from gepa_service.records.store import TenantRecords

BUDGETS = ("max_metric_calls", "max_cost_usd", "max_seconds", "max_iterations")
"""The settings that can be changed while a job runs."""


class ControlRefused(Exception):
    """The status of the job does not allow it; the text has the reason."""


def cancel(records: TenantRecords, store: Store, job: Job, by: str) -> Job:
    """End a job for good. One that has not begun is cancelled at once; that of a cancelled job changes nothing.

    Raises:
        ControlRefused: it has ended in another way.
    """
    del store

    def change(found: Job) -> Job:
        if found.status == "cancelled" or found.wanted == "cancel":
            return found
        _refuse_ended(found)
        ended = {"status": "cancelled", "completed": now(), "reason": f"cancelled by {by}"}
        idle = found.claim is None and found.status in {"pending", "paused"}
        return found.model_copy(update={"wanted": "cancel", **(ended if idle else {})})

    return records.change(job, change)


def pause(records: TenantRecords, store: Store, job: Job, by: str) -> Job:
    """Stop a job so that `resume` continues it. Raises `ControlRefused`: it has ended."""
    del store

    def change(found: Job) -> Job:
        if found.wanted == "pause":
            return found
        _refuse_ended(found)
        paused = {"status": "paused", "reason": f"paused by {by}"} if found.claim is None else {}
        return found.model_copy(update={"wanted": "pause", **paused})

    return records.change(job, change)


def resume(records: TenantRecords, store: Store, job: Job, by: str) -> Job:
    """Continue a paused job. Raises `ControlRefused`: it has ended, or is being cancelled."""
    del store, by

    def change(found: Job) -> Job:
        _refuse_ended(found)
        if found.wanted == "cancel":
            raise ControlRefused("the job is being cancelled")
        if found.wanted == "run" and found.status != "paused":
            return found
        pending = {"status": "pending", "reason": None} if found.status == "paused" else {}
        return found.model_copy(update={"wanted": "run", **pending})

    return records.change(job, change)


def set_budget(records: TenantRecords, store: Store, job: Job, by: str, budget: Mapping[str, float]) -> Job:
    """Change limits of `BUDGETS`. Raises `ControlRefused`: the job has ended."""
    del store, by

    def change(found: Job) -> Job:
        _refuse_ended(found)
        return found.model_copy(update={"settings": {**found.settings, **budget}})

    return records.change(job, change)


def _refuse_ended(job: Job) -> None:
    if job.status in ENDED:
        raise ControlRefused(f"the job is {job.status}")
