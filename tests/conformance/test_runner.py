"""The output and exit status of the runner and of `evolverpc conformance`."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from gepa_client.conformance import ConformanceReport, Verdict, load_checks, run_conformance
from gepa_client.conformance.cases import CaseStep, Expectation
from gepa_client.conformance.check_run import CheckFailed, CheckRun
from gepa_client.conformance.raw_transport import RawAnswer
from protocol.errors import Unauthorized
from tests.conformance.reference_server import TOKEN, Reference
from tests.support.forked_client import ForkServer

Command = Callable[..., Awaitable[tuple[int, str, str]]]
PROGRAM = """
import json, signal, subprocess, sys, time
if "holder" in sys.argv:
    subprocess.Popen(["sleep", "60"])
if "sigterm" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "discover":
        result = {"program": {"name": "own", "seed_candidate": {"rules": ""}}}
    else:
        result = {"results": [{"status": "ok", "score": 1, "output": None}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
if "input" in sys.argv:
    time.sleep(60)
while "flood" in sys.argv:
    print("x" * 65536)
"""
FEW = ("--only", "core.discover", "--only", "jsonrpc.id", "--only", "refs.group", "--only", "jsonrpc.error")


@pytest.fixture
def command(fork_server: ForkServer, tmp_path: Path) -> Command:
    """Returns exit status, stdout and stderr of `evolverpc conformance ARGUMENTS`."""

    async def run(*arguments: str, token: str | None = TOKEN) -> tuple[int, str, str]:
        environment = {name: value for name, value in os.environ.items() if name != "GEPA_TOKEN"}
        if token is not None:
            environment["GEPA_TOKEN"] = token
        status, stdout, stderr = await asyncio.to_thread(
            fork_server.run, ["conformance", *arguments], folder=tmp_path, environment=environment
        )
        return status, stdout.decode(), stderr.decode()

    return run


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The command of a program over stdio; its arguments are its defects."""
    (tmp_path / "program.py").write_text(PROGRAM)
    return f"{sys.executable} {tmp_path / 'program.py'}"


async def report_on(server: Reference, *prefixes: str, token: str | None = TOKEN) -> ConformanceReport:
    chosen = [check for check in load_checks() if check.id.startswith(prefixes)]
    return await run_conformance(server.url, token, checks=chosen)


async def test_checks_that_need_the_conformance_program_or_a_limit_are_not_verified() -> None:
    async with Reference(program_name="tickets", without=frozenset({"commits"})) as server:
        own = await report_on(server, "core.", "evaluate.")
    unverified = {outcome.check.id for outcome in own.outcomes if outcome.verdict is Verdict.NOT_VERIFIED}
    assert unverified == {outcome.check.id for outcome in own.outcomes if outcome.check.program is not None}
    assert (own.conforms, own.parts) == (False, {"core": Verdict.NOT_VERIFIED})
    async with Reference(example_timeout_s=1.0) as server:
        short = await report_on(server, "async.progress", "partial.index", "deadlines.not_raised")
    reasons = {outcome.reason for outcome in short.outcomes if outcome.verdict is Verdict.NOT_VERIFIED}
    assert reasons == {f"needs `example_timeout_s` of at least {least}; this endpoint states 1" for least in (3, 4)}
    assert short.parts == {"async": "not_verified", "partial": "not_verified", "example_timeout": "passed"}


async def test_checks_of_the_token_are_not_verified_if_none_is_given() -> None:
    async with Reference(broken="optional_token") as server:
        [outcome] = (await report_on(server, "security.token.extended", token=None)).outcomes
    assert outcome.verdict is Verdict.NOT_VERIFIED


async def test_a_refused_token_is_inconclusive() -> None:
    async with Reference() as server:
        with pytest.raises(Unauthorized, match="refused the token"):
            await report_on(server, "core.", token="wrong")


async def test_the_command_states_what_is_verified(command: Command) -> None:
    async with Reference() as server:
        status, stdout, _ = await command(server.url, *FEW)
        core = await command(server.url, *FEW, "--level", "core")
    assert status == 0
    assert stdout.splitlines()[-2:] == ["16 passed, 0 failed", "of the checks chosen: core verified; verified: refs"]
    assert core[1].splitlines()[-1] == "of the checks chosen: core verified"


async def test_a_server_with_a_program_of_its_own_is_not_verified(command: Command) -> None:
    async with Reference(program_name="tickets") as server:
        status, stdout, _ = await command(server.url, "--only", "core.")
    assert status == 3
    assert "`evolverpc serve --conformance`, or docs/protocol.md#the-conformance-program" in stdout
    assert stdout.splitlines()[-1].startswith("of the checks chosen: core NOT verified")


async def test_a_broken_must_is_shown_with_a_request_to_paste(command: Command) -> None:
    async with Reference(broken="ids_as_text") as server:
        status, stdout, _ = await command(server.url, "--only", "core.discover.stable")
        assert status == 1
        shown = dict(re.findall(r"^     (\w+): +(.*)$", stdout, re.MULTILINE))
        assert shown["page"] == "docs/protocol.md#discover (MUST)"
        assert TOKEN not in stdout
        pasted = await asyncio.create_subprocess_shell(
            shown["request"], env={**os.environ, "GEPA_TOKEN": TOKEN}, stdout=asyncio.subprocess.PIPE
        )
        answer, _ = await pasted.communicate()
    assert json.loads(answer.splitlines()[-1])["id"] == "1"
    assert (shown["expected"], shown["found"]) == ("id that of the request, 1 (step 1 of 2)", 'id "1"')


async def test_the_token_is_in_no_outcome() -> None:
    step = CaseStep(call="discover", expect=Expectation(result={"program": {"name": "own"}}))
    check = load_checks()[0].model_copy(update={"steps": [step]})
    async with Reference(program_name=TOKEN) as server:
        [outcome] = (await run_conformance(server.url, TOKEN, checks=[check])).outcomes
    assert outcome.found == 'result.program.name "$GEPA_TOKEN"'
    assert TOKEN not in str(outcome.as_json())


class Ending(Reference):
    """Gone from its third request on."""

    answered = 0

    async def answer(self, request: web.Request) -> web.Response:
        if self.answered == 2 and request.transport is not None:
            await asyncio.gather(*(site.stop() for site in set(self.runner.sites)))
            request.transport.abort()
        self.answered += 1
        return await super().answer(request)


async def test_a_server_that_is_lost_ends_the_run(command: Command) -> None:
    async with Ending() as server:
        status, stdout, stderr = await command(server.url, "--only", "core.discover")
    assert status == 2
    assert re.search(
        r"the server is lost: `discover`: .*; the last check that ran: core.discover.components\n$", stderr
    )
    assert stdout.splitlines()[-1] == "of the checks chosen: core failed"


async def test_a_program_over_stdio_is_served_and_checked_in_what_it_does_itself(
    command: Command, program: str, tmp_path: Path
) -> None:
    status, stdout, _ = await command("--command", program, "--only", "core", "--only", "security", "--only", "stdio")
    assert (status, stdout.splitlines()[-1]) == (3, "of the checks chosen: core NOT verified")
    assert all(f"pass {check}" in stdout for check in ("core.discover.complete", "stdio.end_of_input", "stdio.sigterm"))
    assert "security." not in stdout
    status, stdout, stderr = await command("--command", f"{sys.executable} {tmp_path / 'absent.py'}")
    assert (status, stdout) == (2, "")
    assert "No such file or directory" in stderr


async def test_a_program_over_stdio_that_runs_on_is_caught(command: Command, program: str) -> None:
    status, stdout, _ = await command("--command", f"{program} input sigterm", "--only", "stdio")
    assert status == 1
    assert set(re.findall(r"FAIL (\S+)", stdout)) == {"stdio.end_of_input", "stdio.sigterm"}


async def test_a_process_that_holds_the_output_of_a_program_open_is_not_waited_for(
    command: Command, program: str
) -> None:
    status, _, stderr = await command("--command", f"{program} holder", "--only", "stdio")
    assert (status, stderr) == (0, "")


async def test_a_program_that_writes_on_after_the_end_of_its_input_is_caught(command: Command, program: str) -> None:
    status, stdout, stderr = await command("--command", f"{program} flood", "--only", "stdio.end")
    assert (status, stderr) == (1, "")
    assert "found:    it still runs after 5 s" in stdout


async def test_a_broken_should_is_a_warning(command: Command) -> None:
    async with Reference(broken="no_retryable") as server:
        status, stdout, _ = await command(server.url, *FEW)
    assert status == 0
    assert stdout.splitlines()[-3:-1] == ["1 warned", "15 passed, 0 failed"]


async def test_with_json_the_output_is_json_only(command: Command) -> None:
    async with Reference() as server:
        status, stdout, _ = await command(server.url, *FEW, "--json")
    report = json.loads(stdout)
    assert status == 0
    assert (report["conforms"], report["passed"], report["failed"]) == (True, 16, 0)
    assert {"id", "part", "page", "verdict", "reason", "expected", "found", "request"} <= set(report["checks"][0])


async def test_text_of_a_server_is_printed_without_control_characters(command: Command) -> None:
    async with Reference(program_name="\x1b[31mred[/]") as server:
        _, stdout, _ = await command(server.url, *FEW)
    assert "\x1b" not in stdout
    assert "[31mred[/]" in stdout


EVALUATE = {"jsonrpc": "2.0", "id": 1, "method": "evaluate", "params": {"_meta": {"call_id": "c"}}}
COLLECT = {**EVALUATE, "method": "get_result", "params": {"call_id": "c"}}
GOOD = {"jsonrpc": "2.0", "id": 1, "result": {"results": [{"status": "ok", "score": 1, "output": "x", "seconds": 0}]}}
ERROR = {"code": -32602, "message": "Invalid params", "data": {"retryable": False}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (json.dumps(GOOD).replace('"x"', "NaN"), "JSON"),
        (json.dumps(GOOD).replace('"x"', '"\xff"'), "JSON"),
        (json.dumps({**GOOD, "error": ERROR}), "a JSON-RPC response, with either `result` or `error`"),
        (json.dumps({"id": 1, "result": GOOD["result"]}), "jsonrpc what the schema has"),
        *((json.dumps({**GOOD, "id": other}), "id that of the request, 1") for other in (2, "1", 1.0, None)),
        (json.dumps({"jsonrpc": "2.0", "id": 2, "error": ERROR}), "id that of the request, 1"),
        (json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": 1}}), "error.message what the schema has"),
        (json.dumps({**GOOD, "result": {"results": [{}]}}), "result.results[0].status what the schema has"),
        (json.dumps({**GOOD, "result": {"pending": {}}}), "result.pending.call_id what the schema has"),
    ],
)
async def test_every_answer_is_held_against_the_schema_also_a_collected_one_and_one_of_a_batch(
    answer: str, expected: str
) -> None:
    good = json.dumps(GOOD)
    batch = CaseStep(send=[EVALUATE], expect=Expectation(body={"$length": 1}))
    steps = [CaseStep(send=EVALUATE), CaseStep(send=COLLECT), batch]
    assert await _missed((good, good, f"[{good}]"), steps) == ""
    assert expected in await _missed((answer,), steps)
    assert expected in await _missed((good, answer), steps)
    if "that of the request" not in expected:  # each case of a batch states the ids itself
        assert expected in await _missed((good, good, f"[{answer}]"), steps)


async def _missed(answers: tuple[str, ...], steps: list[CaseStep]) -> str:
    """What was expected of the last of the answers and is not so."""
    left = iter(answers)

    async def send(_request: object, **_options: object) -> RawAnswer:
        return RawAnswer(200, {}, next(left).encode("latin-1"), 0.0)

    transport: Any = SimpleNamespace(token=None, send=send)
    run = CheckRun(transport, {"program": {"seed_candidate": {}}, "limits": {"max_request_bytes": 1}})
    try:
        await run.check(load_checks()[0].model_copy(update={"steps": steps[: len(answers)]}))
    except CheckFailed as failure:
        return failure.expected
    return ""
