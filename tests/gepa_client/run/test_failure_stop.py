"""The share of failures that pauses a run depends on what evolves, unless the user sets it."""

from dataclasses import replace

import pytest

from gepa_client.gepa.batch_evaluator import ExampleDone
from gepa_client.run.stops import FAILURE_WINDOW, FailureStop
from gepa_client.settings.run_settings import Evolve
from gepa_client.transport.event_loop import CancelToken

FAILED = ExampleDone("7", {}, "program_error", None, 0.1, {"type": "KeyError", "message": "no"})


@pytest.mark.parametrize(
    ("share", "evolve", "pauses"),
    [(None, "prompts", True), (None, "code", False), (0.5, "code", True), (1.0, "prompts", False)],
)
def test_a_program_that_always_fails_pauses_a_run_that_cannot_fix_it(
    share: float | None, evolve: Evolve, pauses: bool
) -> None:
    cancel_token = CancelToken()
    stop = FailureStop(share, cancel_token)
    stop.begin(evolve)
    for at in range(2 * FAILURE_WINDOW):
        stop.done(replace(FAILED, status="ok" if at < FAILURE_WINDOW else "timeout" if at % 2 else "program_error"))
    assert (cancel_token.reason is not None) == pauses
    if cancel_token.reason is not None:
        assert "allows (1: the run continues regardless); the first: " in cancel_token.reason.reason
