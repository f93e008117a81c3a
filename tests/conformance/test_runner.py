"""The output and exit status of the runner and of `evolverpc conformance`."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gepa_client.conformance import ConformanceReport, Verdict, load_checks, run_conformance
from protocol.errors import Unauthorized
from tests.conformance.reference_server import TOKEN, Reference
from tests.support.forked_client import ForkServer

Command = Callable[..., Awaitable[tuple[int, str, str]]]
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


async def report_on(server: Reference, *prefixes: str, token: str = TOKEN) -> ConformanceReport:
    chosen = [check for check in load_checks() if check.id.startswith(prefixes)]
    return await run_conformance(server.url, token, checks=chosen)


async def test_checks_of_the_conformance_program_are_skipped_for_other_programs() -> None:
    async with Reference(program_name="tickets", without=frozenset({"commits"})) as server:
        report = await report_on(server, "core.", "evaluate.")
    skipped = [outcome for outcome in report.outcomes if outcome.verdict is Verdict.SKIPPED]
    reason = "needs the conformance program; this endpoint serves tickets"
    assert {outcome.reason for outcome in skipped} == {reason}
    assert {outcome.check.id for outcome in skipped} == {
        outcome.check.id for outcome in report.outcomes if outcome.check.program is not None
    }
    assert report.conforms


async def test_a_capability_that_is_not_offered_is_not_tested() -> None:
    async with Reference(without=frozenset({"refs"})) as server:
        report = await report_on(server, "refs.")
    passed = {outcome.check.id for outcome in report.outcomes if outcome.verdict is Verdict.PASSED}
    assert passed == {"refs.not_offered"}
    assert {outcome.reason for outcome in report.outcomes if outcome.verdict is Verdict.SKIPPED} == {
        "not offered: refs"
    }


async def test_a_refused_token_is_inconclusive() -> None:
    async with Reference() as server:
        with pytest.raises(Unauthorized, match="refused the token"):
            await report_on(server, "core.", token="wrong")


async def test_the_command_ends_with_the_counts(command: Command) -> None:
    async with Reference() as server:
        status, stdout, _ = await command(server.url, *FEW)
    assert status == 0
    assert stdout.splitlines()[-1] == "16 passed, 0 failed"


async def test_a_broken_must_ends_the_command_with_1(command: Command) -> None:
    async with Reference(broken="ids_as_text") as server:
        status, stdout, _ = await command(server.url, *FEW)
    assert status == 1
    assert "MUST (JSON-RPC)" in stdout
    assert stdout.splitlines()[-1].endswith(" failed")
    assert not stdout.splitlines()[-1].endswith(" 0 failed")


async def test_a_broken_should_is_a_warning(command: Command) -> None:
    async with Reference(broken="no_retryable") as server:
        status, stdout, _ = await command(server.url, *FEW)
    assert status == 0
    assert stdout.splitlines()[-2:] == ["1 warned", "15 passed, 0 failed"]


async def test_with_json_the_output_is_json_only(command: Command) -> None:
    async with Reference() as server:
        status, stdout, _ = await command(server.url, *FEW, "--json")
    report = json.loads(stdout)
    assert status == 0
    assert (report["conforms"], report["passed"], report["failed"]) == (True, 16, 0)
    assert {"id", "title", "level", "section", "verdict", "reason", "seconds"} == set(report["checks"][0])


async def test_text_of_a_server_is_printed_without_control_characters(command: Command) -> None:
    async with Reference(program_name="\x1b[31mred[/]") as server:
        _, stdout, _ = await command(server.url, *FEW)
    assert "\x1b" not in stdout
    assert "[31mred[/]" in stdout
