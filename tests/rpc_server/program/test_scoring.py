"""Scoring apart: outputs made elsewhere, each scored by itself, by programs with a `run` and by those without one."""

import asyncio
import sys

import pytest

from protocol import Example
from protocol.errors import ProgramFailed
from rpc_server.worker.json_values import json_or_repr
from tests.support.waiting import eventually

WANT = {"want": "x"}


async def test_a_module_with_score_and_no_run_only_scores_and_refuses_to_run_an_example(opened):
    async with opened("judge.py") as running:
        assert running.program.capabilities == {"scoring", "exact_values"}
        assert running.program.info.components == []
        assert running.program.info.seed_candidate == {}
        right, wrong = await running.score((WANT, "x"), (WANT, "y"))
        assert (right["status"], right["score"], right["feedback"]) == ("ok", 1.0, "right")
        assert (wrong["status"], wrong["score"], wrong["feedback"]) == ("ok", 0.0, "wanted x")
        assert await running.evaluate() == []
        with pytest.raises(ProgramFailed) as failed:
            await running.evaluate({})
        assert failed.value.details["stage"] == "evaluate"
        assert "judge has no function `run(example, candidate)`: it only scores" in failed.value.message
        assert not failed.value.retryable


async def test_a_program_that_runs_and_scores_reports_the_sum_of_both_usages(opened):
    async with opened("metered.py") as running:
        for output, status in (("good", "ok"), ("bad", "program_error")):
            result = await running.one({"output": output})
            assert (result["status"], result["output"]) == (status, output)
            assert result["usage"] == {"calls": 3, "input_tokens": 10, "cost_usd": 0.25}
        (scored,) = await running.score(({}, "good"))
        assert scored["usage"] == {"calls": 1, "cost_usd": 0.25}


async def test_a_scorer_that_fails_fails_one_example_each_in_its_own_way(opened):
    async with opened("judge.py", example_timeout_s=1.0) as running:
        ways = ("raise", "transient", "sleep", "exit", "unscored", "fine")
        results = await running.score(*(({"do": way, **WANT}, "x") for way in ways))
        raised, transient, slept, died, unscored, fine = results
        assert raised["status"] == "program_error"
        assert (raised["error"]["type"], raised["error"]["message"]) == ("ValueError", "no verdict")
        assert "judge.py" in raised["error"]["traceback"]
        assert raised["usage"] == {"calls": 1, "cost_usd": 0.5}
        assert transient["status"] == "infra_error"
        assert (slept["status"], slept["error"]["type"]) == ("timeout", "timeout")
        assert (died["status"], died["error"]["type"]) == ("program_error", "process_died")
        assert (unscored["status"], unscored["error"]["type"]) == ("program_error", "invalid_result")
        assert fine["score"] == 1.0


async def test_an_async_score_alone_runs_many_at_once_and_is_cancelled(opened, tmp_path):
    async with opened("judge_async.py") as running:
        assert running.program.info.components == []
        results = await running.score(*(({"want": number, "seconds": 0.05}, number) for number in range(20)))
        assert [result["score"] for result in results] == [1.0] * 20
        begun, cancelled = tmp_path / "begun", tmp_path / "cancelled"
        row = Example(id="0", data={"want": 1, "seconds": 60, "begun": str(begun), "cancelled": str(cancelled)})
        rollout = {"status": "rollout", "score": None, "output": 1, "seconds": 0}
        call = asyncio.create_task(running.program.score([row], [rollout], on_result=lambda *_: None))
        await eventually(begun.exists)
        call.cancel()
        await eventually(cancelled.exists)


async def test_what_a_command_without_components_answers_to_score_is_checked(opened):
    async with opened(command=(sys.executable, "stdio.py", "seedless", "scoring")) as running:
        assert running.program.capabilities == {"scoring"}
        (good,) = await running.score(([{"status": "ok", "score": 0.5, "seconds": 0.1}], "x"))
        assert good["status"] == "ok"
        for answer in ([], [{"status": "ok", "score": None, "seconds": 0.1}], "no list"):
            (bad,) = await running.score((answer, "x"))
            assert (bad["status"], bad["error"]["type"]) == ("program_error", "invalid_result")


def test_an_output_whose_repr_raises_is_shown_by_its_type():
    broken = type("Broken", (), {"__repr__": lambda _: 1 / 0})()
    assert json_or_repr(broken)["repr"] == "its __repr__ raised ZeroDivisionError"
