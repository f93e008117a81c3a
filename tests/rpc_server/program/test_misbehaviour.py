"""Programs that do bad things: each example fails in its own way, and the next good one succeeds."""

import re
import time

import pytest
import pytest_asyncio

from protocol.errors import LimitExceeded
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(opened):
    async with opened("behaves.py") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def program(running):
    yield running
    assert (await running.one({"output": "still here"}))["output"] == "still here"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hasty(opened):
    async with opened("behaves.py", example_timeout_s=0.5, workers=1) as running:
        yield running


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("{1, 2}", "output is a set"),
        ("{'deep': [1, Opaque()]}", "output.deep[1] is a behaves.Opaque"),
        ("{'a': {'b': float('-inf')}}", "output.a.b is infinite"),
        ("(lambda a: a.append(a) or a)([])", "contains itself"),
        ("Hostile(a=1)", "reading it raises KeyError"),
    ],
)
async def test_an_output_that_is_not_json_is_an_invalid_result_that_names_the_place(program, python, message):
    result = await program.one({"do": "python", "python": python}, capture_traces=True)
    assert (result["status"], result["usage"], len(result["trajectory"])) == ("program_error", {"calls": 1}, 1)
    assert result["error"]["type"] == "invalid_result"
    assert message in result["error"]["message"]


async def test_a_row_nested_deeper_than_python_likes_is_read_or_refused_and_never_hurts(program):
    for levels in (500, 990, 1020):
        deep: list = []
        for _ in range(levels):
            deep = [deep]
        try:
            result = await program.one({"do": "python", "python": "'read'", "deep": deep})
        except LimitExceeded as refusal:
            assert levels > 900
            assert refusal.details["limit"] == "nesting"
        else:
            assert result["output"] == "read"


async def test_an_exception_shows_the_frames_of_the_user_only(program):
    result = await program.one({"do": "chain"})
    error = result["error"]
    assert (error["type"], error["message"]) == ("ValueError", "outer")
    assert "KeyError: 'inner'" in error["traceback"]
    assert "direct cause" in error["traceback"]
    assert "behaves.py" in error["traceback"]
    assert "worker" not in error["traceback"]


@pytest.mark.parametrize("error", ["KeyboardInterrupt()", "StopIteration()"])
async def test_any_kind_of_exception_is_the_examples_failure(program, error):
    result = await program.one({"do": "raise", "error": error})
    assert result["status"] == "program_error"
    assert result["error"]["type"] == error.removesuffix("()")
    assert result["usage"] == {"calls": 1}


async def test_endless_recursion_is_a_failure_with_a_traceback_of_bounded_length(program):
    error = (await program.one({"do": "recurse"}))["error"]
    assert error["type"] == "RecursionError"
    assert len(error["traceback"]) < 20_000


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"do": "kill"}, "SIGKILL"),
        ({"do": "segfault"}, "SIGSEGV"),
    ],
)
async def test_a_process_that_dies_of_its_example_is_the_examples_failure(program, row, message):
    result = await program.one(row)
    assert (result["status"], result["error"]["type"]) == ("program_error", "process_died")
    assert message in result["error"]["message"]
    if row["do"] == "segfault":  # with what was printed, and the stack of Python
        assert re.search("about to crash.*do_segfault", result["error"]["log"], re.DOTALL)


@pytest.mark.parametrize("do", ["sleep", "stubborn", "spin_in_c", "swallow_once"])
async def test_an_example_that_hangs_in_any_way_is_ended_at_its_deadline(hasty, do):
    await hasty.one({"do": "python", "python": "signal.signal(signal.SIGALRM, signal.SIG_IGN)"})  # until it ends
    started = time.monotonic()
    result = await hasty.one({"do": do, "seconds": 60})
    assert do != "sleep" or "do_sleep" in result["error"]["traceback"]
    assert (result["status"], result["error"]["type"]) == ("timeout", "timeout")
    assert time.monotonic() - started < 4.0
    assert (await hasty.one({"output": "still here"}))["output"] == "still here"
    await eventually(lambda: len(hasty.processes()) <= 2)  # one and the warm one: the one that it hung in has ended


@pytest.mark.parametrize("do", ["fork", "fork_and_raise"])
async def test_a_forked_process_that_comes_back_from_run_answers_nothing_and_ends(program, do):
    results = await program.evaluate(*[{"do": do}] * 4)
    assert [result["output"] for result in results] == ["parent"] * 4


async def test_a_process_left_behind_by_user_code_ends_with_its_worker(program):
    result = await program.one({"do": "leave_child"})
    assert result["output"] in program.processes()
