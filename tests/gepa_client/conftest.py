"""A scripted server, and the command line run against it as a user would run it."""

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gepa_client.cli.app import build
from gepa_client.journal.http_store import TOKEN_FILE_VARIABLE
from gepa_client.run import supervisor
from tests.gepa_client.scripted_server import TOKEN, Host
from tests.gepa_client.started_command import StartedCommand
from tests.gepa_client.word_program import Script, rows
from tests.support.forked_client import ForkServer

TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """Stdout as JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    def event(self, name: str) -> dict[str, Any]:
        """The last event of this name."""
        return [event for event in self.events if event["event"] == name][-1]

    def timeless(self, name: str) -> list[dict[str, Any]]:
        """The events of this name without the time they happened at."""
        return [{**event, "seconds": 0} for event in self.events if event["event"] == name]

    @property
    def found(self) -> list[tuple[Any, ...]]:
        """The reported candidates."""
        return [
            (event["texts"], event["parents"], event["score"], event["metric_calls"])
            for event in self.events
            if event["event"] == "candidate"
        ]


Serve = Callable[[Script], str]
Cli = Callable[..., Ran]
Start = Callable[..., StartedCommand]


@pytest.fixture
def host() -> Iterator[Host]:
    """Runs servers in a thread of its own; they end with the test."""
    made = Host()
    yield made
    made.close()


@pytest.fixture
def serve(host: Host) -> Serve:
    """Starts scripted servers; each reports a process id of its own."""
    numbers = itertools.count(1)

    def start(script: Script) -> str:
        server = script.server()
        server.instance_id = f"instance-{next(numbers)}"
        return host.serve(server.handle)

    return start


@pytest.fixture
def words() -> Script:
    """A program that starts from an empty text and learns words, with rows of its own."""
    return Script(datasets={"train": rows(30), "val": rows(12, 100), "test": rows(12, 200)})


def environment() -> dict[str, str]:
    """What a shell would give the command: no colours, no width of this terminal, the token."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GEPA_", "COLUMNS", "FORCE_")) or name == TOKEN_FILE_VARIABLE
    }
    return {**kept, "GEPA_TOKEN": TOKEN, "COLUMNS": "100"}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "gepa_client", *map(str, arguments)]


def commands_in(folder: Path, fork_server: ForkServer) -> Cli:
    """Runs `evolverpc` in this folder and waits for its end."""

    def run(*arguments: object, stdin: str = "") -> Ran:
        given = [str(argument) for argument in arguments]
        status, stdout, stderr = fork_server.run(given, folder=folder, environment=environment(), stdin=stdin.encode())
        return Ran(status, stdout.decode(), stderr.decode())

    return run


@pytest.fixture
def cli(tmp_path: Path, fork_server: ForkServer) -> Cli:
    """Runs `evolverpc` in a folder of its own and waits for its end."""
    return commands_in(tmp_path, fork_server)


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer) -> Cli:
    """Runs `evolverpc` in this process: most tests here need many commands, and each would load everything anew."""
    monkeypatch.setattr(supervisor, "subprocess", fork_server.forking_subprocess())
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)

    def run(*arguments: object, within: str = ".", stdin: str = "") -> Ran:
        with contextlib.chdir(tmp_path / within):
            words = [str(argument) for argument in arguments]
            ended = CliRunner().invoke(
                build(words[0]), words, input=stdin, catch_exceptions=False, prog_name="evolverpc"
            )
        return Ran(ended.exit_code, ended.stdout, ended.stderr)

    return run


@pytest.fixture
def start(tmp_path: Path, fork_server: ForkServer) -> Iterator[Start]:
    """Starts `evolverpc` and leaves it running; processes that still run at the end of the test are killed."""
    running: list[StartedCommand] = []

    def begin(*arguments: object) -> StartedCommand:
        words = [str(argument) for argument in arguments]
        running.append(StartedCommand(fork_server, words, folder=tmp_path, environment=environment()))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.lines.close()
        process.errors.close()
