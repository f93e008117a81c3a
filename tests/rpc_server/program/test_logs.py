"""What a program writes while an example runs is kept with that example, and with no other."""

import logging
import re

import pytest
import pytest_asyncio

from rpc_server.program.process import MAX_LOG_BYTES, written_output
from tests.rpc_server.program.conftest import DATA, PACKAGE, needs_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORDS = [[f"{name}{number}" for number in range(20)] for name in "abcd"]


def _lines(words: list[str]) -> str:
    return "".join(f"{word}\n" for word in words)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(opened):
    async with opened("writes.py", workers=1, concurrency=4) as running:
        yield running


async def test_examples_in_threads_have_logs_of_their_own_with_all_kinds_of_output_in_order(running):
    results = await running.evaluate(*[{"print": words} for words in WORDS])
    result = await running.one({"print": ["é"], "log": "mind"})
    assert [result["log"] for result in results] == [_lines(words) for words in WORDS]
    printed, logged, warning, source, after = result["log"].splitlines()
    assert (printed, logged) == ("é", "mind")
    assert warning.endswith("UserWarning: mind again")
    assert "warnings.warn" in source
    assert after == "without end bytes"


async def test_examples_on_one_event_loop_have_logs_of_their_own(opened):
    async with opened("writes_async.py", workers=1) as running:
        rows = [{"print": words, "in_thread": "and a thread"} for words in WORDS]
        results = await running.evaluate(*rows)
    assert [result["log"] for result in results] == [_lines([*words, "and a thread"]) for words in WORDS]


async def test_output_of_threads_subprocesses_and_forks_belongs_to_the_only_open_example(running):
    result = await running.one({"thread": "from a thread", "subprocess": "from echo", "fork": "from a fork"})
    assert result["log"] == "from a thread\nfrom echo\nfrom a fork\n"


async def test_output_that_may_be_of_several_examples_is_of_none_and_is_not_lost(running, caplog):
    with caplog.at_level(logging.INFO, written_output.name):
        results = await running.evaluate(
            {"meet": True, "print": ["a"], "thread": "from a thread", "subprocess": "from echo"},
            {"meet": True, "print": ["b"]},
        )
    assert [result["log"] for result in results] == ["a\n", "b\n"]
    await eventually(lambda: {"from a thread", "from echo"} <= set("\n".join(caplog.messages).splitlines()))


async def test_a_failure_a_time_out_and_a_death_keep_their_own_logs(opened):
    async with opened("writes.py", workers=1, concurrency=3, example_timeout_s=1.0) as running:
        failed, late, dead = await running.evaluate(
            {"print": ["of the failure"], "raise": "no"},
            {"print": ["of the time-out"], "sleep": 60},
            {"print": ["of the death"], "sleep": 0.2, "die": True},
            seconds=30,
        )
    assert [result["error"]["type"] for result in (failed, late, dead)] == ["ValueError", "timeout", "process_died"]
    logs = [result["error"]["log"] for result in (failed, late, dead)]
    assert logs == ["of the failure\n", "of the time-out\n", "of the death\n"]
    assert not any("log" in result for result in (failed, late, dead))


async def test_a_long_log_keeps_its_first_and_last_lines_and_states_what_is_left_out(running):
    log = (await running.one({"flood": 20_000}))["log"]
    first, left_out, last = re.split("(?<=\n)… (.*) bytes left out …\n", log)
    assert first.startswith("first\n000000000\n")
    assert last.endswith("\n000019999\nlast\n")
    assert len(first) + len(last) <= MAX_LOG_BYTES
    assert int(left_out.replace(",", "")) == len("first\n") + 20_000 * 10 + len("last\n") - len(first) - len(last)


@needs_node
async def test_a_typescript_program_marks_what_each_example_writes_even_if_it_is_killed(opened, caplog):
    command = ("node", str(DATA / "writes.mjs"), str(PACKAGE))
    rows = [{"print": words} for words in WORDS]
    with caplog.at_level(logging.INFO, written_output.name):
        async with opened(command=command, workers=1, example_timeout_s=1.0) as running:
            results = await running.evaluate(*rows)
            stuck, dead = await running.evaluate({"print": ["stuck"], "hang": True}, {"print": ["dead"], "die": True})
    assert [result["log"] for result in results] == [_lines(words) for words in WORDS]
    assert (stuck["status"], stuck["error"]["log"]) == ("timeout", "stuck\n")
    assert (dead["error"]["type"], dead["error"]["log"]) == ("process_died", "dead\n")
    assert [record.message for record in caplog.records if record.name == written_output.name] == []
