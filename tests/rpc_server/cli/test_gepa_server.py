"""`evolverpc serve` as a process of its own: how it starts, what it prints, how it ends."""

import asyncio
import json
import shlex
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evolverpc_common.git import run_git_async
from tests.rpc_server.conftest import Refusal
from tests.rpc_server.program.conftest import DATA
from tests.rpc_server.server_process import WAIT_S, asked, first_line, ready, server_process
from tests.support.forked_client import ForkServer
from tests.support.forked_commands import write_commands

PLAIN = "seed_candidate = {'system': 'x'}\ndef run(example, candidate):\n    return 1\n"
STDIO = (DATA / "stdio.py").read_text()

Started = Callable[..., AbstractAsyncContextManager[asyncio.subprocess.Process]]


@pytest.fixture
def forked(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Started:
    """`server_process` with a fork, for tests of neither how a server starts nor how it ends."""
    commands = tmp_path_factory.mktemp("commands")
    write_commands(fork_server, commands)
    return partial(server_process, command=[str(commands / "gepa-server")])


async def call(event: dict[str, Any], method: str, params: dict[str, Any]) -> Any:
    _, answer = await asked(event["url"], method, params, Authorization=f"Bearer {event['token']}")
    assert "result" in answer, answer
    return answer["result"]


def text_of(file: Path) -> str | None:
    return file.read_text() if file.exists() else None


def evaluation(*data: Any, candidate: dict[str, str], **meta: Any) -> dict[str, Any]:
    batch = [{"id": str(position), "data": one} for position, one in enumerate(data)]
    return {"candidate": candidate, "batch": batch, **({"_meta": meta} if meta else {})}


async def test_a_server_can_end_with_its_standard_input(tmp_path: Path) -> None:
    async with server_process(tmp_path, "--conformance", "--json", "--until-stdin-closes") as process:
        await ready(process)
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), WAIT_S) == 0


async def test_the_next_command_names_the_server_and_the_file_of_its_token(tmp_path: Path, forked: Started) -> None:
    async with forked(tmp_path, "--conformance") as process:
        await first_line(process)
        _, command, url, flag, token_file, *_ = shlex.split((await first_line(process)).partition(": ")[2])
        assert (command, flag) == ("check", "--token-file")
        found = await call({"url": f"{url}/rpc", "token": (text_of(Path(token_file)) or "").strip()}, "discover", {})
        assert found["program"]["name"] == "conformance"


async def test_sigterm_lets_a_running_call_finish_and_takes_the_token_file_along(tmp_path: Path) -> None:
    async with server_process(tmp_path, "--conformance", "--json") as process:
        event = await ready(process)
        assert event["pid"] == process.pid
        token_file = Path(event["token_file"])
        assert text_of(token_file) == event["token"] + "\n"
        found = await call(event, "discover", {})
        assert found["server"]["instance_id"] == event["instance_id"]
        seed = found["program"]["seed_candidate"]
        params = evaluation({"sleep_ms": 700, "output": "late"}, candidate=seed, call_id="c", wait_s=0)
        assert "pending" in await call(event, "evaluate", params)
        process.send_signal(signal.SIGTERM)
        assert json.loads(await first_line(process)) == {"event": "draining"}
        answer = await call(event, "get_result", {"call_id": "c", "wait_s": 20})
        assert answer["results"][0]["output"] == "late"
        assert await asyncio.wait_for(process.wait(), WAIT_S) == 0
        assert text_of(token_file) is None


async def test_the_build_runs_before_the_program_starts_and_its_failure_ends_the_server(
    tmp_path: Path, forked: Started, refusal: Refusal
) -> None:
    (tmp_path / "source.py").write_text(STDIO)
    (tmp_path / "rows.csv").write_text("do\nrow\n")
    build, command = ("--build-command", "cp source.py program.py"), ("--command", sys.executable, "program.py")
    async with forked(tmp_path, "--json", "--datasets", "train=rows.csv", *build, *command, "untyped_rows") as process:
        params = {"candidate": {"prompt": "seed"}, "batch": [{"id": "0", "split": "train"}]}
        (result,) = (await call(await ready(process), "evaluate", params))["results"]
        assert result["output"] == {"id": "0", "data": {"do": "row"}, "untyped": True}
    assert "no compiler" in refusal(tmp_path, "--build-command", "sh -c 'echo no compiler; exit 3'", *command)


async def test_rows_that_a_command_shares_are_served_and_others_reported(tmp_path: Path, forked: Started) -> None:
    (tmp_path / "program.py").write_text(STDIO)
    async with forked(tmp_path, "--json", "--command", sys.executable, "program.py", "datasets", "secret") as process:
        found = await call(await ready(process), "discover", {})
        assert {split: info["size"] for split, info in found["datasets"].items()} == {"train": 3}
        assert process.stderr is not None
        line = await asyncio.wait_for(process.stderr.readline(), WAIT_S)
        assert line.startswith(b"evolverpc serve: split 'secret' is left out")


async def test_a_file_that_is_changed_after_its_program_was_loaded_is_named_until_it_is_as_before(
    tmp_path: Path, forked: Started
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "app.py").write_text("import parts\n" + PLAIN)
    parts = tmp_path / "project" / "parts.py"
    parts.write_text("ONE = 1\n")
    async with forked(tmp_path, "--json", "--program", "project/app.py") as process:
        event = await ready(process)
        before = (await call(event, "discover", {}))["program"]
        parts.write_text("ONE = 2\n")
        after = (await call(event, "discover", {}))["program"]
        parts.write_text("ONE = 1\n")
        again = (await call(event, "discover", {}))["program"]
        parts.unlink()
        gone = (await call(event, "discover", {}))["program"]
    assert set(before["files"]) == {"project/app.py", "project/parts.py"}
    assert after == {**before, "changed_files": ["project/parts.py"]}
    assert again == gone == before


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "exactly one of `program`, `adapter` and `command` (given: none), as in `evolverpc serve program.py`"),
        (("--program", "app.py", "--host", "::"), "GEPA_TOKEN"),
        (("--command", "no-such-program-here"), "no-such-program-here"),
        (("nowhere.rb",), "nowhere.rb belongs to no flag: `evolverpc serve FILE` serves a Python file"),
    ],
)
def test_a_program_that_cannot_be_served_is_reported_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], part: str, refusal: Refusal
) -> None:
    (tmp_path / "app.py").write_text(PLAIN)
    reported = refusal(tmp_path, *arguments)
    assert reported.startswith("evolverpc serve: ")
    assert part in reported
    assert "Traceback" not in reported


def test_a_taken_port_is_reported_at_once(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "app.py").write_text("import time\ntime.sleep(60)\n" + PLAIN)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        reported = refusal(tmp_path, "--program", "app.py", "--port", str(taken.getsockname()[1]))
    assert "the port is in use, perhaps by a server that you started before: end it, or give another --port" in reported


async def test_sigint_ends_promptly_while_calls_run(tmp_path: Path) -> None:
    async with server_process(tmp_path, "--conformance", "--json") as process:
        event = await ready(process)
        seed = (await call(event, "discover", {}))["program"]["seed_candidate"]
        params = evaluation({"sleep_ms": 60_000}, candidate=seed, call_id="c", wait_s=0)
        assert "pending" in await call(event, "evaluate", params)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 130


async def test_a_token_file_made_in_a_repository_is_ignored_there_and_mentioned_once(
    tmp_path: Path, forked: Started
) -> None:
    (tmp_path / "sub").mkdir()
    await run_git_async("init", "--quiet", folder=tmp_path)
    for start, mentioned in ((1, 1), (2, 0)):
        async with forked(tmp_path / "sub", "--conformance", "--json", "--token-file", "my [token]") as process:
            await ready(process)
            process.send_signal(signal.SIGTERM)
            _, errors = await asyncio.wait_for(process.communicate(), WAIT_S)
            assert errors.decode().count("is in a git repository") == mentioned, start
    assert await run_git_async("status", "--porcelain", "--untracked-files=all", folder=tmp_path) == b""
    assert (tmp_path / ".git" / "info" / "exclude").read_text().count("token") == 1


async def test_a_token_file_that_a_gitignore_includes_is_refused_with_the_reason(
    tmp_path: Path, refusal: Refusal
) -> None:
    await run_git_async("init", "--quiet", folder=tmp_path)
    (tmp_path / ".gitignore").write_text("*\n!token\n")
    exclude = tmp_path / ".git" / "info" / "exclude"
    before = exclude.read_text() if exclude.exists() else ""
    reported = refusal(tmp_path, "--conformance", "--token-file", "token")
    assert "a line of a .gitignore that begins with ! includes token" in reported
    assert not (tmp_path / "token").exists()
    assert exclude.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [
        (["--program", "without.py"], True),
        (["--command", f"{sys.executable} stdio.py"], False),  # `evaluate` of a command may return scores
    ],
)
async def test_a_program_without_a_score_function_is_warned_of_and_no_other_is(
    tmp_path: Path, forked: Started, arguments: list[str], warned: bool
) -> None:
    (tmp_path / "without.py").write_text(PLAIN)
    (tmp_path / "stdio.py").write_text(STDIO)
    async with forked(tmp_path, *arguments, "--json", "--port", "0") as process:
        await ready(process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        printed = (await asyncio.wait_for(process.stderr.read(), WAIT_S)).decode()
    lines = [line for line in printed.splitlines() if "score(example, output)" in line]
    assert len(lines) == warned, printed
    assert all("write this function" in line and "--score-with URL" in line for line in lines)


WRITING = """
import threading
print("while it is imported")
seed_candidate = {"system": "x"}
def run(example, candidate):
    print("of \\x1b[31m" + example)
def score(example, output):
    return 1.0
"""


async def test_what_the_program_writes_is_printed_by_example_if_logs_are_wanted(
    tmp_path: Path, forked: Started
) -> None:
    (tmp_path / "program.py").write_text(WRITING)
    secret = "sk-very-secret-1234"
    async with forked(tmp_path, "--program", "program.py", "--json", "--logs", SERVICE_API_KEY=secret) as process:
        event = await ready(process)
        params = evaluation("one", secret, candidate={"system": "x"}, call_id="0123456789")
        results = (await call(event, "evaluate", params))["results"]
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        printed = (await asyncio.wait_for(process.stderr.read(), WAIT_S)).decode()
    assert [result["log"] for result in results] == ["of \x1b[31mone\n", f"of \x1b[31m{secret}\n"]
    assert "score(example, output)" not in printed, "it has this function"
    lines = [
        "[program] while it is imported",
        "[01234567 0] of \\u001b[31mone",
        "[01234567 1] of \\u001b[31m[redacted]",
    ]
    assert sorted(line for line in printed.splitlines() if line.startswith("[")) == sorted(lines)
