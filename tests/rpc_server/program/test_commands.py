"""Commands that speak the protocol over stdio, well and badly."""

import re
import sys
import time

import pytest
import pytest_asyncio

from protocol.errors import ProgramFailed
from rpc_server.methods.dataset_rows import program_rows
from rpc_server.program import process

pytestmark = pytest.mark.asyncio(loop_scope="module")
COMMAND = (sys.executable, "stdio.py")


def nested(levels):
    """A result whose output is that deep; the result itself is a level more."""
    return '{"status":"ok","score":1,"output":' + "[" * levels + "]" * levels + ',"seconds":0}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(opened):
    async with opened(command=COMMAND, workers=1) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def program(running):
    yield running
    assert (await running.one({"output": "still here"}))["output"] == "still here"


async def test_each_process_has_its_own_concurrency_and_the_settings_bound_the_total(opened):
    async with opened(command=COMMAND, workers=2) as running:
        assert running.program.limits.max_concurrency == 8
        assert running.program.info.name == "stdio"
    async with opened(command=COMMAND, workers=2, concurrency=5, name="mine") as running:
        assert running.program.limits.max_concurrency == 5
        assert running.program.info.name == "mine"


async def test_the_smaller_of_a_commands_and_the_settings_limits_hold(opened):
    settings = {"workers": 1, "example_timeout_s": 20}
    async with opened(command=COMMAND, max_batch_size=9, **settings) as running:
        limits = running.program.limits
        assert (limits.max_batch_size, limits.max_request_bytes, limits.example_timeout_s) == (9, 100_000, 20)
    async with opened(command=(*COMMAND, "hurried"), max_request_bytes=50_000, **settings) as running:
        limits = running.program.limits
        assert (limits.max_batch_size, limits.max_request_bytes, limits.example_timeout_s) == (10, 50_000, 0.3)
        assert (await running.one({"do": "silent"}))["status"] == "timeout"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"do": "short"}, "0 results for 1 examples"),
        ({"do": "long"}, "2 results for 1 examples"),
        ({"do": "shapeless", "result": {}}, "no list of results"),
        ({"do": "bare", "result": "x"}, "the result is a string"),
        ({"do": "bare", "result": {"status": "great", "score": None, "seconds": 1}}, "status"),
        ({"do": "result", "result": {"score": None}}, "score is missing"),
        ({"do": "result", "result": {"score": "high"}}, "score is a string ('high')"),
        ({"do": "result", "result": {"seconds": -1}}, "seconds"),
        ({"do": "result", "result": {"feedback": 5}}, "feedback"),
        ({"do": "raw", "text": '{"status":"ok","score":NaN,"output":null,"seconds":0}'}, "score is NaN"),
        ({"do": "raw", "text": '{"status":"ok","score":-Infinity,"output":null,"seconds":0}'}, "score is infinite"),
        ({"do": "raw", "text": '{"status":"ok","score":1,"output":[NaN],"seconds":0}'}, "output[0] is NaN"),
        (
            {"do": "raw", "text": '{"status":"ok","score":1%s,"output":1,"seconds":0}' % ("0" * 400)},
            "score is infinite",
        ),
        ({"do": "raw", "text": '{"status":"ok","score":1,"output":%s,"seconds":0}' % ("[" * 2000)}, "cannot be read"),
        ({"do": "raw", "text": nested(200)}, "nested more than 200 levels"),
        ({"do": "raw", "text": '{"status":"ok","score":1,"output":1%s,"seconds":0}' % ("0" * 5000)}, "cannot be read"),
    ],
)
async def test_a_result_that_breaks_the_contract_is_invalid_with_a_reason(program, row, message):
    result = await program.one(row)
    assert result["status"] == "program_error"
    assert result["error"]["type"] == "invalid_result"
    assert message in result["error"]["message"]


async def test_lines_that_are_no_messages_are_log_text(program):
    assert (await program.one({"do": "noise", "output": "answered"}))["output"] == "answered"


async def test_a_retryable_error_is_an_infrastructure_failure_and_any_other_fails_the_call(program):
    internal = {"code": -32603, "message": "Internal error"}
    assert (await program.one({"do": "error", "error": internal}))["status"] == "infra_error"
    failed = {"code": -32025, "message": "no model", "data": {"retryable": False, "stage": "load"}}
    with pytest.raises(ProgramFailed) as reject:
        await program.one({"do": "error", "error": failed})
    assert (reject.value.message, reject.value.details["stage"]) == ("no model", "load")
    with pytest.raises(ProgramFailed) as reject:
        await program.one({"do": "error", "error": {"code": -32602, "message": "Invalid params"}})
    assert reject.value.details["program_error"]["code"] == -32602


async def test_a_command_that_never_answers_is_killed_and_started_again(opened):
    async with opened(command=COMMAND, workers=1, example_timeout_s=0.5) as running:
        before = (await running.one({"do": "pid"}))["output"]
        assert (await running.one({"do": "silent"}))["status"] == "timeout"
        assert (await running.one({"do": "pid"}))["output"] != before


@pytest_asyncio.fixture(loop_scope="module")
async def narrow(opened, monkeypatch):
    """The same program behind a server that keeps lines of 1 MiB at most."""
    monkeypatch.setattr(process, "answer_bytes", lambda: 2**20)
    async with opened(command=COMMAND, workers=1, max_result_bytes=100_000) as running:
        yield running
        assert (await running.one({"output": "still here"}))["output"] == "still here"


async def test_a_line_without_an_end_ends_the_process_instead_of_filling_memory(narrow):
    result = await narrow.one({"do": "flood_stdout"})
    assert result["error"]["type"] == "process_died"
    assert "bytes on stdout: process ended" in result["error"]["log"]


@pytest.mark.parametrize("place", ["first", "last"])
async def test_an_answer_that_is_not_kept_for_its_length_is_its_examples_failure_and_hurts_no_other(narrow, place):
    before = (await narrow.one({"do": "pid"}))["output"]
    large, *others = await narrow.evaluate({"do": "large", "bytes": 5_000_000, "id": place}, *[{"output": 1}] * 5)
    assert (large["status"], large["score"], large["error"]["type"]) == ("program_error", None, "output_too_large")
    size = int(re.fullmatch(r"output of (\d+) bytes, more than 100000 accepted", large["error"]["message"])[1])
    assert 5_000_000 < size < 5_001_000
    assert [result["output"] for result in others] == [1] * 5
    assert (await narrow.one({"do": "pid"}))["output"] == before


async def test_a_command_that_exits_at_an_example_is_that_examples_failure_with_its_last_words(program):
    dying, *others = await program.evaluate({"do": "exit"}, {"output": 1}, {"output": 2})
    assert dying["error"]["type"] == "process_died"
    assert "status 7" in dying["error"]["message"]
    assert dying["error"]["log"] == "last words\n"
    assert [result["output"] for result in others] == [1, 2]


async def test_a_program_with_refs_gets_exactly_one_process(opened):
    async with opened(command=(*COMMAND, "refs"), workers=1) as running:
        assert running.program.limits.max_concurrency == 4
        assert "refs" in running.program.capabilities
        results = await running.evaluate(*[{"do": "pid"}] * 12)
        assert len({result["output"] for result in results}) == 1


async def test_the_state_of_a_process_is_given_to_the_one_that_replaces_it(opened):
    async with opened(command=(*COMMAND, "refs", "adapter_state"), workers=1, example_timeout_s=1.0) as running:
        assert (await running.one({"do": "meta", "state": {"seen": 3}}))["output"] is None
        await running.one({"do": "exit"})
        assert (await running.one({"do": "meta"}))["output"] == {"adapter_state": {"seen": 3}}
        await running.one({"do": "meta", "state": {"seen": 4}})
        await running.one({"do": "exit"})
        answer = await running.program.call("make_reflective_dataset", {"candidate": {}, "eval_batch": {"batch": []}})
        assert answer["adapter_state"] == {"seen": 4}


@pytest.mark.parametrize(
    ("command", "stage", "message"),
    [
        ((*COMMAND, "dead"), "start", "exited with status 2"),
        ((*COMMAND, "old"), "discover", "versions 9"),
        ((*COMMAND, "seedless"), "discover", "no components"),
        ((*COMMAND, "shapeless"), "discover", "protocol_versions"),
        ((*COMMAND, "refusing"), "discover", "refused discover"),
        (("no-such-command-here",), "start", "no-such-command-here"),
        (("./stdio.py",), "start", "stdio.py"),
    ],
)
async def test_a_command_that_cannot_serve_is_reported_before_its_time_limit(opened, command, stage, message):
    started = time.monotonic()
    with pytest.raises(ProgramFailed) as failed:
        async with opened(command=command):
            pass
    assert time.monotonic() - started < 10.0  # of 20 s
    assert failed.value.details["stage"] == stage
    assert message in failed.value.message
    if "dead" in command:
        assert failed.value.details["log_tail"] == "cannot continue\n"


async def test_a_command_that_never_answers_discover_is_reported_at_the_start_time_out(opened):
    with pytest.raises(ProgramFailed, match="did not start within"):
        async with opened(command=(*COMMAND, "mute"), start_timeout_s=0.5):
            pass


async def test_rows_that_a_command_holds_are_fetched_page_by_page(opened):
    async with opened(command=(*COMMAND, "datasets")) as running:
        assert await program_rows(running.program) == {"train": [{"output": "held"}] * 3}
    async with opened(command=COMMAND) as running:
        assert await program_rows(running.program) == {}


@pytest.mark.parametrize(
    ("manner", "message"), [("few", "has 2 rows instead of the 3 announced"), ("texts", "not a JSON object")]
)
async def test_a_command_that_does_not_list_the_announced_rows_is_refused(opened, manner, message):
    async with opened(command=(*COMMAND, "datasets", manner)) as running:
        with pytest.raises(ProgramFailed, match=message) as failed:
            await program_rows(running.program)
        assert failed.value.details["stage"] == "datasets"
