"""Whether a job whose run has stopped continues by itself follows from the kind of the stop, never from its text."""

from pathlib import Path
from typing import Any

import pytest

from gepa_client.errors import ClaimLost, ConnectionLost, Interrupted, RunBusy, StoreUnavailable
from gepa_client.run.failures import finished_by
from gepa_service.jobs.optimization import ended_as


@pytest.mark.parametrize(
    ("fields", "ended"),
    [
        ({"status": "paused", "infrastructure": True}, "interrupted"),
        ({"status": "refused", "infrastructure": True}, "interrupted"),
        ({"status": "paused"}, "paused"),
        ({"status": "refused"}, "failed"),
        ({"status": "failed"}, "failed"),
        ({"status": "completed"}, "completed"),
        ({"status": "cancelled"}, "cancelled"),
    ],
)
def test_a_job_continues_by_itself_if_its_infrastructure_was_lost_and_not_by_its_reason(
    fields: dict[str, Any], ended: str, tmp_path: Path
) -> None:
    assert ended_as(reason="the sandboxes are lost: x", output=tmp_path, **fields).status == ended


@pytest.mark.parametrize(
    ("error", "is_infrastructure"),
    [
        (StoreUnavailable("locked"), True),
        (ClaimLost("another process drives it"), True),
        (RunBusy("its driver lives"), True),
        (Interrupted("paused", "lost", infrastructure=True), True),
        (Interrupted("paused", "lost", infrastructure=True).again(), True),
        (Interrupted("paused", "the store is unavailable: of the program's own"), False),
        (ConnectionLost("no answer from the server"), True),
        (ValueError("no"), False),
    ],
)
def test_a_run_states_with_its_last_event_whether_infrastructure_stopped_it(
    error: BaseException, is_infrastructure: bool
) -> None:
    assert finished_by(error).infrastructure is is_infrastructure
