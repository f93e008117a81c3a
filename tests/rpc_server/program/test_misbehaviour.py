"""Programs that do bad things: each example fails in its own way, and the next good one succeeds."""

import time

import pytest

from protocol.errors import LimitExceeded


@pytest.fixture
async def program(opened):
    async with opened("behaves.py") as running:
        yield running
        assert (await running.one({"output": "still here"}))["output"] == "still here"


@pytest.fixture
async def hasty(opened):
    async with opened("behaves.py", example_timeout_s=0.5) as running:
        yield running
        assert (await running.one({"output": "still here"}))["output"] == "still here"


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("float('nan')", "NaN"),
        ("float('inf')", "infinite"),
        ("'high'", "string"),
        ("None", "missing"),
        ("[1]", "list"),
        ("{}", "missing"),
        ("{'score': 1, 'feedbak': 'x'}", "feedbak"),
        ("(1, 2)", "feedback"),
        ("{'score': 1, 'objective_scores': {'cost': float('nan')}}", "objective_scores.cost is NaN"),
    ],
)
async def test_a_score_that_is_no_finite_number_is_an_invalid_result(program, score, message):
    result = await program.one({"score": score})
    assert result["status"] == "program_error"
    assert result["error"]["type"] == "invalid_result"
    assert message in result["error"]["message"]


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("{1, 2}", "output is a set"),
        ("{'deep': [1, Opaque()]}", "output.deep[1] is a behaves.Opaque"),
        ("[float('nan')]", "output[0] is NaN"),
        ("{'a': {'b': float('-inf')}}", "output.a.b is infinite"),
        ("{(1, 2): 3}", "key of type tuple"),
        ("b'bytes'", "output is a bytes"),
        ("(lambda a: a.append(a) or a)([])", "contains itself"),
        ("Hostile(a=1)", "reading it raises KeyError"),
    ],
)
async def test_an_output_that_is_not_json_is_an_invalid_result_that_names_the_place(program, python, message):
    result = await program.one({"do": "python", "python": python})
    assert result["status"] == "program_error"
    assert result["error"]["type"] == "invalid_result"
    assert message in result["error"]["message"]


async def test_integers_that_other_readers_would_round_have_markers(program):
    python = "[2**53 - 1, 2**53, {'a': (-2**53, 10**300)}, 1e300, True, 0.12345678901234568]"
    result = await program.one({"do": "python", "python": python}, capture_traces=True)
    assert result["output"] == [
        2**53 - 1,
        {"$exact": ["integer", str(2**53)]},
        {"a": [{"$exact": ["integer", str(-(2**53))]}, {"$exact": ["integer", "1" + "0" * 300]}]},
        1e300,
        True,
        0.12345678901234568,
    ]


async def test_keys_that_are_numbers_become_strings_as_json_has_it(program):
    result = await program.one({"do": "python", "python": "{1: 'a', None: 'b'}"})
    assert result["output"] == {"1": "a", "null": "b"}


async def test_half_of_a_surrogate_pair_is_kept(program):
    result = await program.one({"do": "python", "python": "'a' + chr(0xD800) + 'b'"})
    assert result["output"] == {"$exact": ["text", "a\\ud800b"]}


async def test_an_output_of_ten_megabytes_arrives_whole(program):
    result = await program.one({"do": "python", "python": "'x' * 10_000_000"})
    assert result["output"] == "x" * 10_000_000


async def test_a_row_of_ten_megabytes_arrives_whole(program):
    result = await program.one({"output": "y" * 10_000_000})
    assert len(result["output"]) == 10_000_000


async def test_a_row_nested_deeper_than_python_likes_is_read_or_refused_and_never_hurts(program):
    for levels in (500, 900, 990, 1020):
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


async def test_what_a_program_prints_never_touches_the_frames(program):
    result = await program.one({"do": "print", "text": "something"})
    assert result["status"] == "ok"
    assert result["output"] == "fine"
    assert "error" not in result


async def test_the_end_of_the_log_comes_with_a_failing_example(program):
    await program.one({"do": "print", "text": "of an earlier example"})
    result = await program.one({"do": "print_and_raise"})
    assert result["error"]["type"] == "ValueError"
    assert result["error"]["log"] == "before the failure\n"


async def test_a_flood_on_stderr_is_swallowed_and_only_its_start_and_end_are_kept(program):
    result = await program.one({"do": "flood", "chunks": 400, "raise": True})
    assert result["error"]["type"] == "ValueError"
    assert result["error"]["log"] == "x" * 8192 + f"\n… {400 * 65536 - 16384:,} bytes left out …\n" + "x" * 8192


async def test_an_exception_shows_the_frames_of_the_user_only(program):
    result = await program.one({"do": "chain"})
    error = result["error"]
    assert (error["type"], error["message"]) == ("ValueError", "outer")
    assert "KeyError: 'inner'" in error["traceback"]
    assert "direct cause" in error["traceback"]
    assert "behaves.py" in error["traceback"]
    assert "worker" not in error["traceback"]


@pytest.mark.parametrize("error", ["KeyboardInterrupt()", "MemoryError()", "GeneratorExit()", "StopIteration()"])
async def test_any_kind_of_exception_is_the_examples_failure(program, error):
    result = await program.one({"do": "raise", "error": error})
    assert result["status"] == "program_error"
    assert result["error"]["type"] == error.removesuffix("()")
    assert result["usage"] == {"calls": 1}


async def test_an_exception_that_cannot_be_read_is_the_examples_failure_too(program):
    results = await program.evaluate({"do": "raise", "error": "Unreadable()"}, {"output": 1})
    assert [result["status"] for result in results] == ["program_error", "ok"]
    assert results[0]["error"]["type"] == "Unreadable"


async def test_an_alarm_that_an_example_leaves_behind_is_not_anothers_failure(opened):
    async with opened("behaves.py", workers=1, example_timeout_s=0.5) as running:
        await running.one({"do": "own_alarm"})
        assert (await running.one({"do": "sleep", "seconds": 5}))["status"] == "timeout"


@pytest.mark.parametrize("row", [{"do": "stop_the_clock"}, {"do": "stop_the_clock", "nan": 1}, {"do": "break_streams"}])
async def test_what_a_program_replaces_in_its_process_does_not_spoil_its_results(opened, row):
    async with opened("behaves.py", workers=1) as running:
        assert [(await running.one(one))["status"] for one in (row, {"output": 1})] == ["ok", "ok"]


async def test_sys_exit_is_a_failure_and_the_process_stays(program):
    assert (await program.one({"do": "sys_exit"}))["error"]["type"] == "SystemExit"


async def test_endless_recursion_is_a_failure_with_a_traceback_of_bounded_length(program):
    error = (await program.one({"do": "recurse"}))["error"]
    assert error["type"] == "RecursionError"
    assert len(error["traceback"]) < 20_000


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"do": "exit", "status": 3}, "exited with status 3"),
        ({"do": "exit", "status": 0}, "exited with status 0"),
        ({"do": "kill"}, "SIGKILL"),
        ({"do": "segfault"}, "SIGSEGV"),
    ],
)
async def test_a_process_that_dies_of_its_example_is_the_examples_failure(program, row, message):
    result = await program.one(row)
    assert result["status"] == "program_error"
    assert result["error"]["type"] == "process_died"
    assert message in result["error"]["message"]


async def test_the_log_of_a_crash_holds_what_was_printed_and_the_python_stack(program):
    log = (await program.one({"do": "segfault"}))["error"]["log"]
    assert "about to crash" in log
    assert "do_segfault" in log


@pytest.mark.parametrize("do", ["spin", "stubborn", "spin_in_c", "swallow_once"])
async def test_an_example_that_hangs_in_any_way_is_ended_at_its_deadline(hasty, do):
    started = time.monotonic()
    result = await hasty.one({"do": do})
    assert result["status"] == "timeout"
    assert result["error"]["type"] == "timeout"
    assert time.monotonic() - started < 4.0


async def test_a_sleep_is_ended_in_its_own_process_with_a_traceback(hasty):
    pids = {(await hasty.one({"do": "pid"}))["output"] for _ in range(4)}
    result = await hasty.one({"do": "sleep", "seconds": 60})
    assert result["status"] == "timeout"
    assert "do_sleep" in result["error"]["traceback"]
    assert {(await hasty.one({"do": "pid"}))["output"] for _ in range(4)} <= pids


@pytest.mark.parametrize("do", ["fork", "fork_and_raise"])
async def test_a_forked_process_that_comes_back_from_run_answers_nothing_and_ends(program, do):
    results = await program.evaluate(*[{"do": do}] * 4)
    assert [result["output"] for result in results] == ["parent"] * 4


async def test_a_process_left_behind_by_user_code_ends_with_its_worker(program):
    result = await program.one({"do": "leave_child"})
    assert result["output"] in program.processes()


async def test_a_program_that_closes_all_descriptors_loses_its_process_only(program):
    result = await program.one({"do": "close_descriptors"})
    assert result["error"]["type"] == "process_died"


async def test_a_program_that_reads_stdin_finds_it_empty(program):
    assert (await program.one({"do": "stdin"}))["output"] == ""


async def test_killing_the_warm_parent_again_and_again_ends_as_the_examples_failure(program):
    result = await program.one({"do": "kill_parent"})
    assert result["status"] == "program_error"
    assert result["error"]["type"] == "process_died"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("Busy()", "infra_error"),
        ("ConnectionRefusedError()", "infra_error"),
        ("TimeoutError(110, 'Connection timed out')", "infra_error"),
        ("TimeoutError('my own limit')", "program_error"),
        ("Wrong()", "program_error"),
        ("ValueError()", "program_error"),
    ],
)
async def test_a_providers_outage_is_an_infrastructure_failure(program, error, status):
    result = await program.one({"do": "raise", "error": error})
    assert result["status"] == status
    assert result["error"]["type"] == error.partition("(")[0]
