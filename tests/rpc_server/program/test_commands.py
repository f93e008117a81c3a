"""Commands that speak the protocol over stdio, well and badly."""

import asyncio
import re
import sys
import time

import pytest
import pytest_asyncio

from protocol.errors import ProgramFailed
from protocol.over_stdio import filled_discovery
from rpc_server.methods.dataset_rows import program_rows
from rpc_server.program import process

pytestmark = pytest.mark.asyncio(loop_scope="module")
COMMAND = (sys.executable, "stdio.py")


ANSWER = '{"jsonrpc":"2.0","id":ID,"result":{"results":[%s]}}'
GOOD = ANSWER % '{"status":"ok","score":true,"objective_scores":{"a":false},"output":3}'


def written(result):
    """A row whose answer has this text as the result."""
    return {"do": "write", "text": ANSWER % result + "\n"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(opened):
    async with opened(command=COMMAND, workers=1) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def program(running):
    yield running
    assert (await running.one({"output": "still here"}))["output"] == "still here"


async def test_limits_are_those_of_all_processes_and_the_smaller_of_a_commands_and_the_settings(opened):
    async with opened(command=COMMAND, workers=2, max_batch_size=9) as running:
        info, limits = running.program.info, running.program.limits
        assert (info.name, limits.max_concurrency) == ("stdio", 8)
        assert (limits.max_batch_size, limits.max_request_bytes, limits.example_timeout_s) == (9, 100_000, 20)
    settings = {"workers": 2, "concurrency": 5, "name": "mine", "version": "9", "max_request_bytes": 50_000}
    async with opened(command=(*COMMAND, "hurried"), **settings) as running:
        info, limits = running.program.info, running.program.limits
        assert (info.name, info.version, limits.max_concurrency) == ("mine", "9", 5)
        assert (limits.max_batch_size, limits.max_request_bytes, limits.example_timeout_s) == (10, 50_000, 0.3)
        assert (await running.one({"do": "silent"}, timeout_s=9.0))["error"]["message"] == "ran longer than 0.3 s"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"do": "answer", "result": {"results": []}}, "0 results for 1 examples"),
        ({"do": "answer", "result": {}}, "no list of results"),
        ({"do": "answer", "result": {"results": ["x"]}}, "valid dictionary"),
        ({"do": "result", "result": {"status": "great", "score": None}}, "status"),
        ({"do": "result", "result": {"score": None}}, "a score goes with `ok`"),
        ({"do": "result", "result": {"score": "high"}}, "score: Input should be a valid number"),
        ({"do": "result", "result": {"feedback": 5}}, "feedback"),
        (written('{"status":"ok","score":NaN,"output":null}'), "cannot be read"),
        (written('{"status":"ok","score":1,"output":"\\ud83d"}'), "cannot be read"),
        (written('{"status":"ok","score":1%s,"output":1}' % ("0" * 400)), "cannot be read (number is infinity"),
        (written('{"status":"ok","score":1,"output":%s}' % ("[" * 2000)), "cannot be read"),
        (written('{"status":"ok","score":1,"output":%s}' % ("[" * 200 + "]" * 200)), "nested more than 200 levels"),
        (written('{"status":"ok","score":1,"output":1%s}' % ("0" * 5000)), "cannot be read"),
        ({"do": "write", "text": "unended:" + GOOD + "\n"}, "cannot be read (unexpected character"),
        ({"do": "write", "text": GOOD + GOOD + "\n"}, "cannot be read (unexpected content after document"),
    ],
)
async def test_a_result_that_breaks_the_contract_is_invalid_with_a_reason(program, row, message):
    result = await program.one(row)
    assert result["status"] == "program_error"
    assert result["error"]["type"] == "invalid_result"
    assert message in result["error"]["message"]


async def test_a_retryable_error_is_an_infrastructure_failure_and_any_other_fails_the_call(program):
    internal = {"code": -32603, "message": "Internal error"}
    assert (await program.one({"do": "answer", "error": internal}))["status"] == "infra_error"
    failed = {"code": -32025, "message": "no model", "data": {"retryable": False, "stage": "load"}}
    with pytest.raises(ProgramFailed) as reject:
        await program.one({"do": "answer", "error": failed})
    assert (reject.value.message, reject.value.details["stage"]) == ("no model", "load")
    with pytest.raises(ProgramFailed) as reject:
        await program.one({"do": "answer", "error": {"code": -32602, "message": "Invalid params"}})
    assert reject.value.details["program_error"]["code"] == -32602


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
    assert "bytes or more on stdout: process ended" in result["error"]["log"]


async def test_an_answer_that_is_too_long_to_be_kept_is_its_examples_failure_and_hurts_no_other(narrow):
    large, *others = await narrow.evaluate({"do": "large", "bytes": 5_000_000}, *[{"output": 1}] * 5)
    assert (large["status"], large["score"], large["error"]["type"]) == ("program_error", None, "process_died")
    assert "a line of 1048576 bytes or more on stdout: process ended" in large["error"]["log"]
    assert [result["output"] for result in others] == [1] * 5


async def test_a_command_that_exits_at_an_example_is_that_examples_failure_with_its_last_words(program):
    logged = {"do": "result", "result": {"output": 2, "log": "its own"}}
    dying, *others = await program.evaluate({"do": "exit", "half": "{"}, {"output": 1}, logged)
    assert dying["error"]["type"] == "process_died"
    assert "status 7: sent evaluate; received 1 byte without a newline" in dying["error"]["message"]
    assert dying["error"]["log"] == "last words\n{\n"
    assert [(result["output"], result.get("log")) for result in others] == [(1, None), (2, "its own")]


async def test_a_program_with_refs_gets_one_process_whose_state_is_given_to_the_one_that_replaces_it(opened):
    async with opened(
        command=(*COMMAND, "refs", "adapter_state", "reflective_datasets"), workers=1, example_timeout_s=1.0
    ) as running:
        assert running.program.limits.max_concurrency == 4
        assert "refs" in running.program.capabilities
        assert len({result["output"] for result in await running.evaluate(*[{"do": "pid"}] * 12)}) == 1
        assert (await running.one({"do": "meta", "state": {"seen": 3}}))["output"] is None
        await running.one({"do": "exit"})
        assert (await running.one({"do": "meta"}))["output"] == {"adapter_state": {"seen": 3}}
        meta = {"group": "g", "example_timeout_s": 0.9}
        assert (await running.one({"do": "meta", "state": {"seen": 4}}, group="g", timeout_s=0.9))["output"] == meta
        await running.one({"do": "exit"})
        answer = await running.program.call("make_reflective_dataset", {"candidate": {}, "eval_batch": {"batch": []}})
        assert answer["adapter_state"] == {"seen": 4}


@pytest.mark.parametrize(
    ("command", "stage", "message"),
    [
        ((*COMMAND, "dead"), "start", "exited with status 2"),
        ((*COMMAND, "seedless"), "discover", "no components"),
        (("true",), "start", "status 0 before it answered: it must read requests until its input ends"),
        (("printf", "half"), "start", "sent discover; received 4 bytes without a newline at the end (`half`)"),
        (("no-such-command-here",), "start", "no-such-command-here"),
        (("./stdio.py",), "start", "'./stdio.py' cannot be executed: chmod +x it"),
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


ANSWERED = '{"jsonrpc": "2.0", "id": 1, "result": %s}\\n'
IN_PLACE_OF_AN_ANSWER = {
    "": "nothing: it must read JSON-RPC from stdin line by line, and flush each answer",
    '{"jsonrpc": "2.0", "id"': '23 bytes without a newline at the end (`{"jsonrpc": "2.0", "id"`)',
    "ready\\n": "`ready`, which answers no request: unexpected character",
    "[]\\n": "`[]`, which answers no request: no JSON object",
    '{"id": 1, "result": {}}\\n': 'the member "jsonrpc": "2.0" is missing',
    '{"jsonrpc": "2.0", "id": 7, "result": {}}\\n': "which answers no request: write its `id` and a `result`",
    '{"jsonrpc": "2.0", "id": "1", "result": {}}\\n': "write its `id` and a `result`",
    '{"jsonrpc": "2.0", "id": 1, "method": "discover"}\\n': "write its `id` and a `result`",
    "\\0377\\n": "which answers no request: ",
    '{"jsonrpc": "2.0", "id": 1, "result": {}}{"jsonrpc"\\n': "cannot be read (unexpected content after document",
    ANSWERED % '{"program": {"name": "x"}}': "program.seed_candidate: missing field",
    '{"jsonrpc": "2.0", "id": 1}\\n': "program.name: missing field; the least is {",
    '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "no"}}\\n': "refused discover: no",
    ANSWERED % '{"protocol_versions": ["9"], "program": {"name": "x", "seed_candidate": {}}}': "versions 9",
}
"""What a command writes after it has read `discover` -> a part of the error."""


async def test_what_came_in_place_of_an_answer_is_reported_once_and_in_the_error(opened, monkeypatch, caplog):
    async def start(text):
        command = ("sh", "-c", "read line; printf '%b' \"$1\"; exec sleep 60", "sh", text)
        with pytest.raises(ProgramFailed) as failed:
            async with opened(command=command, start_timeout_s=4):
                pass
        late = failed.value.message.startswith("the program did not start within 4 s: sent discover; received ")
        assert failed.value.details["stage"] == ("start" if late else "discover")
        return failed.value.message

    monkeypatch.setattr(process, "SILENCE_S", 1)
    messages = await asyncio.gather(*map(start, IN_PLACE_OF_AN_ANSWER))
    for message, expected in zip(messages, IN_PLACE_OF_AN_ANSWER.values(), strict=True):
        assert expected in message
    assert caplog.text.count("no answer yet: sent discover; received ") == 9


async def test_what_a_program_gives_as_null_is_filled_in_like_what_it_leaves_out():
    given = {"server": None, "program": {"name": "x", "components": None, "seed_candidate": {"a": ""}}}
    found = filled_discovery({**given, "limits": {"max_concurrency": None}}, {"max_batch_size": 9})
    assert found["program"]["components"] == [{"name": "a"}]
    assert (found["server"]["name"], found["limits"]) == ("program", {"max_concurrency": 1, "max_batch_size": 9})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def least(opened):
    async with opened(command=(*COMMAND, "least"), workers=3, example_timeout_s=1) as running:
        yield running


async def test_a_command_may_leave_out_what_the_server_knows(least):
    info, limits = least.program.info, least.program.limits
    assert [(part.name, part.kind) for part in info.components] == [("prompt", "text")]
    assert (limits.max_concurrency, limits.max_batch_size, limits.example_timeout_s) == (3, 1000, 1)
    given = {"status": "ok", "score": 1, "output": 2}, {"status": "program_error", "seconds": None}
    given += ({"status": "ok", "score": 1, "output": 3, "seconds": 99},)  # more than it can have taken
    scored, failure, stated = await least.evaluate(*[{"do": "answer", "result": {"results": [one]}} for one in given])
    assert (scored["score"], scored["output"], failure["score"]) == (1, 2, None)
    assert failure["error"]["message"] == "the program gave no reason"
    assert 0 < scored["seconds"] < 1 and 0 < failure["seconds"] < 1
    assert (stated["status"], stated["seconds"]) == ("ok", 99)


async def test_an_example_that_is_answered_by_no_message_states_what_came(least):
    late, logged = [await least.one({"do": "write", "text": text}) for text in ('{"status": "ok"', "loading\n")]
    assert re.search("sent evaluate; received (no answer, but )?15 bytes without", late["error"]["message"])
    assert "received" not in logged["error"]["message"]
    assert (await least.one({"output": 1}))["output"] == 1


async def test_an_answer_with_a_wrong_id_is_reported_while_its_request_waits(opened, monkeypatch, caplog):
    monkeypatch.setattr(process, "SILENCE_S", 0.1)
    async with opened(command=(*COMMAND, "least"), workers=1, example_timeout_s=2) as running:
        assert (await running.one({"output": 1}))["output"] == 1
        await running.one({"do": "write", "text": 2 * '{"jsonrpc": "2.0", "id": 9999, "result": {}}\n'})
    assert len(re.findall(r"no answer yet: sent evaluate; received .*\"id\": 9999", caplog.text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        GOOD + "\r\n\r\n",
        GOOD.replace("ID", "ID.0") + " \n",
        '\ufeff{"id":ID,"result":{"results":[{"status":"ok","score":1,"output":3}]},"jsonrpc":"2.0"}\n',
        'text\n{"not": "a message"}\n[1, 2]\n{ broken\n{"jsonrpc":"2.0","id":12345678,"result":{}}\n' + GOOD + "\n",
    ],
)
async def test_an_answer_is_read_among_text_and_with_the_line_ends_and_the_byte_order_mark_of_windows(program, text):
    assert (await program.one({"do": "write", "text": text}))["output"] == 3


async def test_answers_may_come_in_another_order(program):
    results = await program.evaluate({"do": "later", "output": 1}, {"output": 2})
    assert [result["output"] for result in results] == [1, 2]


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({}, "dataset: missing field"),
        ({"dataset": {"prompt": "text"}}, "dataset.prompt: "),
        ({"dataset": {"prompt": ["text"]}}, "dataset.prompt[0]: "),
        ({"dataset": 5}, "dataset: "),
    ],
)
async def test_a_programs_answer_that_breaks_the_contract_is_its_failure(program, answer, fault):
    with pytest.raises(ProgramFailed) as failed:
        await program.program.call("make_reflective_dataset", {"answer": answer})
    assert failed.value.message.startswith(f"the answer does not fit the contract: {fault}")
    assert failed.value.details["stage"] == "make_reflective_dataset"


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
