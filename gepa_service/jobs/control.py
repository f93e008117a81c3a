"""What a tenant asks of its work: to cancel, pause or resume it, or to change its budget. Its attempt acts on it.

Cancelled work has that status at once, also if it is running: from then on its token is refused, and its attempt,
which looks at the record twice a second, ends its processes.
"""

import contextlib
from collections.abc import Callable, Mapping

from gepa_client.errors import NoSuchRun, SteeringRefused
from gepa_client.journal.steer_entries import SetBudget
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import OVER
from gepa_client.settings.loading import replaced
from gepa_client.steering.user_requests import request
from gepa_service.model.work import ENDED, NAMES, Status, Work
from gepa_service.records import TenantRecords, now
from gepa_service.webhooks import announce


class ControlRefused(Exception):
    """The status of the work does not allow it; the text has the reason."""


def cancel(records: TenantRecords, store: Store, job: Work, by: str) -> Work:
    """End work for good, at once; what it has found is kept. If it is cancelled already, nothing changes.

    Raises:
        ControlRefused: it has ended in another way. StoreUnavailable: the work is cancelled, its run is not marked.
    """
    reason = f"cancelled by {by}"

    def change(found: Work) -> Work:
        if found.status == "cancelled":
            return found
        _refuse_ended(found)
        ended = {"status": "cancelled", "completed": now(), "reason": reason}
        return found.model_copy(update={"wanted": "cancel", **ended})

    cancelled = _announced(records, job, change)
    with contextlib.suppress(NoSuchRun):
        run = store.run(job.id)
        if run.status not in OVER:
            store.update(run.id, {"status": "cancelled", "reason": reason})
        if run.claim.owner is not None:
            store.release(run.id, run.claim.owner)
    return cancelled


def pause(records: TenantRecords, job: Work, by: str) -> Work:
    """Stop a job so that `resume` continues it. Raises `ControlRefused`: it has ended."""

    def change(found: Work) -> Work:
        if found.wanted == "pause":
            return found
        _refuse_ended(found)
        paused = {"status": "paused", "reason": f"paused by {by}"} if found.status != "running" else {}
        return found.model_copy(update={"wanted": "pause", **paused})

    return _announced(records, job, change)


def resume(records: TenantRecords, job: Work) -> Work:
    """Continue a paused job. Raises `ControlRefused`: it has ended."""

    def change(found: Work) -> Work:
        _refuse_ended(found)
        if found.wanted == "run" and found.status != "paused":
            return found
        pending = {"status": "pending", "reason": None} if found.status == "paused" else {}
        return found.model_copy(update={"wanted": "run", **pending})

    return records.change(job, change)


def set_budget(records: TenantRecords, store: Store, job: Work, by: str, budget: Mapping[str, float]) -> Work:
    """Change limits: of the running optimizer too, which takes those of `SetBudget` before its next proposal.

    Others hold when the job is continued.

    Raises:
        ControlRefused: the job has ended, or its run cannot take the limit. StoreUnavailable: nothing was changed.
    """
    _refuse_ended(job)
    steered = {name: value for name, value in budget.items() if name in SetBudget.model_fields}
    if steered and job.status == "running":
        try:
            with contextlib.suppress(NoSuchRun):  # it begins with the new limits
                request(store, job.id, SetBudget.model_validate(steered), by=by)
        except SteeringRefused as error:
            raise ControlRefused(str(error)) from None

    def change(found: Work) -> Work:
        _refuse_ended(found)
        kept = {name: value for name, value in found.settings.items() if name not in replaced(budget)}
        return found.model_copy(update={"settings": {**kept, **budget}})

    return records.change(job, change)


def _announced(records: TenantRecords, job: Work, change: Callable[[Work], Work]) -> Work:
    """Change work, and queue the event of its status if that is another one now."""
    before: list[Status] = []

    def noted(found: Work) -> Work:
        before.append(found.status)
        return change(found)

    changed = records.change(job, noted)
    if before[-1] != changed.status:
        announce(records, changed)
    return changed


def _refuse_ended(job: Work) -> None:
    if job.status in ENDED:
        raise ControlRefused(f"the {NAMES[job.what]} is {job.status}")
