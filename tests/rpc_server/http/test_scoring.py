"""`score` over HTTP: its results, its progress, and calls that are cancelled."""

import asyncio
from typing import Any

import pytest

from protocol import errors

ROLLOUT = {"status": "rollout", "score": None, "output": "an answer", "seconds": 2.0}
SCORED = {"status": "ok", "score": 0.5, "output": None, "feedback": "so so", "usage": {"calls": 1}, "seconds": 0.1}
SCORED |= {"component_feedback": {"system": "new"}, "objective_scores": {"new": 0.5}}


@pytest.fixture
async def scorer(start: Any, fake_program: Any) -> Any:
    program = fake_program("scoring")
    program.answers["score"] = SCORED
    return await start(program)


def params(*results: dict[str, Any], data: Any = "row") -> dict[str, Any]:
    return {"batch": [{"id": str(at), "data": data} for at in range(len(results))], "results": list(results)}


async def test_a_scored_result_has_the_scoring_and_all_else_as_it_came(scorer: Any) -> None:
    before = {"feedback": "old", "component_feedback": {"system": "old"}, "objective_scores": {"old": 1}}
    came = {**ROLLOUT, **before, "usage": {"calls": 9}, "metric_calls": 3, "trajectory": ["a step"], "log": "of run"}
    scorer.program.answers["score"] = {**SCORED, "log": " and score"}
    answer = await scorer.call("score", params(came))
    assert answer == {"results": [{**came, **SCORED, "output": "an answer", "log": "of run and score"}]}
    scorer.program.answers["score"] = ROLLOUT
    [unscored] = (await scorer.call("score", params({**ROLLOUT, "log": "of the run"})))["results"]
    assert (unscored["status"], unscored["error"]["type"]) == ("program_error", "invalid_result")
    assert unscored["error"]["log"] == "of the run"
    assert scorer.program.calls[-1][1]["results"] == [ROLLOUT], "without the log: the program may give one of its own"


async def test_a_scoring_call_reports_progress_and_can_be_cancelled(scorer: Any) -> None:
    waiting = params(ROLLOUT, {**ROLLOUT, "status": "infra_error"}, data={"wait": "gate"})
    pending = await scorer.call("score", waiting, call_id="c", wait_s=0)
    assert pending == {"pending": {"call_id": "c", "progress": {"done": 1, "total": 2}}}
    async with asyncio.timeout(10):
        await scorer.program.waiting.wait()
    assert await scorer.call("cancel", {"call_id": "c"}) == {"status": "cancelled"}
    assert scorer.program.cancelled.is_set()
    with pytest.raises(errors.CallCancelled):
        await scorer.call("get_result", {"call_id": "c"})
