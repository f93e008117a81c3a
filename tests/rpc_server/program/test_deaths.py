"""Processes that end or hang while examples run: which example fails, which run again, which are unaffected."""

import asyncio
import os
import signal
import sys
import time

import pytest

from protocol import Example
from protocol.errors import ProgramFailed
from rpc_server.program.child_process import Exit, Pipes
from rpc_server.program.launcher import CommandLauncher
from rpc_server.program.process import ProgramProcess
from rpc_server.program.scheduler import start_process
from tests.support.waiting import eventually


def pids_in(path):
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def test_a_worker_killed_from_outside_leaves_the_result_intact(opened, tmp_path):
    pids = tmp_path / "pids"
    async with opened("behaves.py", workers=1) as running:
        evaluation = asyncio.create_task(running.one({"do": "write_pid_and_sleep", "file": str(pids), "seconds": 1}))
        (pid,) = await eventually(lambda: pids_in(pids))
        os.kill(pid, signal.SIGKILL)
        result = await evaluation
        assert result["output"] == "slept"
        first, second = pids_in(pids)
        assert first != second


async def test_calls_take_turns(opened):
    async with opened("behaves.py", workers=1) as running:
        long = asyncio.create_task(running.evaluate(*[{"do": "sleep", "seconds": 0.1}] * 20))
        await asyncio.sleep(0)
        await running.one({"output": 1})
        assert not long.done()
        long.cancel()


async def test_only_what_dies_alone_is_the_cause_of_a_death_in_a_shared_process(opened):
    """With threads, a death ends the neighbours too: only the example that kills its process again when alone fails."""
    async with opened("behaves.py", workers=1, concurrency=4) as running:
        rows = [{"do": "sleep", "seconds": 0.3}, {"do": "exit"}, {"do": "sleep", "seconds": 0.3}]
        results = await running.evaluate(*rows)
        assert [result["status"] for result in results] == ["ok", "program_error", "ok"]
        assert results[1]["error"]["type"] == "process_died"


async def test_a_process_whose_parent_dies_while_it_starts_is_started_again(tmp_path):
    answer = '{"jsonrpc": "2.0", "id": %d, "result": {"program": {"name": "p", "seed_candidate": {"a": "b"}}}}'
    program = f"import json, sys\nfor line in sys.stdin: print('{answer}' % json.loads(line)['id'], flush=True)"
    commands = CommandLauncher((sys.executable, "-c", program), root=tmp_path, env={})

    class Orphaning:
        """Its first processes end as forks do whose parent has died."""

        def __init__(self, first: int) -> None:
            self.first = first

        async def launch(self):
            self.first -= 1
            if self.first < 0:
                return await commands.launch()
            pipes = Pipes()
            process = ProgramProcess(lambda: None, pipes)
            pipes.close_child_ends()
            process.ended(Exit(None, parent_died=True))
            return process

    worker = await start_process(Orphaning(1), 30.0)
    assert worker.discovery.program.name == "p"
    await worker.process.end(grace_s=0)
    with pytest.raises(ProgramFailed, match="ended with the process it was forked from"):
        await start_process(Orphaning(2), 30.0)


@pytest.mark.parametrize(("times", "status"), [(2, "rollout"), (9, "program_error")])
async def test_an_example_is_the_cause_if_the_parent_of_its_process_dies_twice_while_it_is_alone(
    opened, tmp_path, times, status
):
    (tmp_path / "mine.py").write_text(
        "import os, time\n"
        "seed_candidate = {'a': 'b'}\n"
        "def run(example, candidate):\n"
        "    with open('runs', 'a') as file:\n"
        "        file.write('x')\n"
        f"    if os.path.getsize('runs') <= {times}:\n"
        "        os.kill(os.getppid(), 9)\n"
        "        time.sleep(9)\n"
    )
    async with opened("mine.py", root=tmp_path, workers=1) as running:
        assert (await running.one({}))["status"] == status
    assert len((tmp_path / "runs").read_text()) == 3


async def test_a_call_whose_process_dies_is_made_again_and_one_that_is_cancelled_gives_its_place_back(opened, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os\n"
        "seed_candidate = {'a': 'b'}\n"
        "def run(example, candidate): return 1\n"
        "def propose_new_texts(candidate, reflective_dataset, components_to_update):\n"
        "    if not os.path.exists('died'):\n"
        "        open('died', 'w').close()\n"
        "        os._exit(1)\n"
        "    return {'a': 'new'}\n"
    )
    async with opened("mine.py", root=tmp_path, workers=1) as running:
        params = {"candidate": {"a": "b"}, "reflective_dataset": {}, "components_to_update": ["a"]}
        assert await running.program.call("propose_new_texts", params) == {"texts": {"a": "new"}}
        options = {"capture_traces": False, "on_result": lambda *_: waiting.cancel()}  # just when it gets the place
        evaluation = running.program.evaluate({"a": "b"}, [Example(id="0", data={})], **options)
        evaluating = asyncio.create_task(evaluation)
        await asyncio.sleep(0)  # it is the first one
        waiting = asyncio.create_task(running.program.call("propose_new_texts", params))
        await asyncio.wait([evaluating, waiting])
        assert waiting.cancelled()
        assert (await running.one({}, seconds=15))["output"] == 1


async def test_a_program_that_cannot_be_had_any_more_is_not_ready_and_recovers(opened, tmp_path):
    source = "seed_candidate = {'a': 'b'}\ndef run(example, candidate):\n    import os\n    return os.getppid()\n"
    (tmp_path / "mine.py").write_text(source)
    async with opened("mine.py", root=tmp_path, workers=1) as running:
        pid = (await running.one({}))["output"]
        (tmp_path / "mine.py").write_text("raise ValueError('broken meanwhile')")
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not running.program.ready)
        failures = await asyncio.gather(running.one({}), running.one({}), return_exceptions=True)
        assert ["broken meanwhile" in str(failure) for failure in failures] == [True, True]
        assert failures[0] is not failures[1]
        (tmp_path / "mine.py").write_text(source)
        await eventually(lambda: running.program.ready)
        pid = (await running.one({}))["output"]
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: pid not in running.processes())
        assert (await running.one({}))["status"] == "rollout", "earlier failures do not count any more"
        await running.program.close()
        with pytest.raises(ProgramFailed, match="shutting down"):
            await running.one({})


async def test_close_ends_processes_that_are_busy_and_can_be_called_twice(opened, tmp_path):
    pids = tmp_path / "pids"
    async with opened("behaves.py", workers=2) as running:
        rows = [{"do": "write_pid_and_sleep", "file": str(pids), "seconds": 60}, {"do": "spin_in_c"}]
        evaluation = asyncio.create_task(running.evaluate(*rows))
        await eventually(lambda: pids_in(pids))
        started = time.monotonic()
        await running.program.close()
        await running.program.close()
        assert time.monotonic() - started < 5
        with pytest.raises(Exception, match="shutting down"):
            await evaluation
        assert not running.processes()
