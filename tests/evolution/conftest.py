"""The repeats example evolving: its own repository and server, the real agent, and models that follow a script."""

import itertools
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox_runtime import ServerEndpoint, running_server
from tests.evolution.scenario import Reflection, changes, write_scripts
from tests.gepa_client.scripted_server import Host
from tests.support import scripted_anthropic
from tests.support.forked_client import ForkServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "repeats"
RUN_S = 300.0
MARK = "MARK_OF_THE_TEST"
"""A variable that the server and every process it starts have."""

sys.path.insert(0, str(EXAMPLE))
import evolve  # noqa: E402  # a script beside its programs, as a user runs it


@dataclass(frozen=True)
class World:
    """One repository of the example, and where its models are."""

    folder: Path
    repository: Path
    reflection: Reflection
    model_url: str
    agent_environment: dict[str, str]
    mark: str
    fork_server: ForkServer

    def serving(self) -> AbstractContextManager[ServerEndpoint]:
        """`with world.serving() as endpoint`: a server beside the program."""
        return self.fork_server.running_server(cwd=self.repository, env=self._variables)

    def serving_as_a_user(self) -> AbstractContextManager[ServerEndpoint]:
        """The same, as a process whose environment shows `MARK`."""
        return running_server(evolve.server_command(), cwd=self.repository, env=self._variables)

    @property
    def _variables(self) -> dict[str, str]:
        return {**self.agent_environment, "XDG_CACHE_HOME": str(self.folder / "cache"), MARK: self.mark}

    def client(
        self,
        endpoint: ServerEndpoint | None,
        *arguments: object,
        variables: Mapping[str, str] | None = None,
        status: int = 0,
    ) -> str:
        """Return what a `evolverpc` command prints, run in `folder`; its exit status must be this."""
        ended, stdout, stderr = self.fork_server.run(
            [str(argument) for argument in arguments],
            folder=self.folder,
            environment={**self.environment(endpoint), **(variables or {})},
            timeout_s=RUN_S,
        )
        assert ended == status, (stdout + stderr).decode()
        return stdout.decode()

    def optimize(self, endpoint: ServerEndpoint, *arguments: object) -> list[dict[str, Any]]:
        """The events of a run."""
        printed = self.client(endpoint, *self.optimize_arguments(endpoint), *arguments, "--json")
        return [json.loads(line) for line in printed.splitlines()]

    def optimize_arguments(self, endpoint: ServerEndpoint) -> list[object]:
        """Of `evolverpc`, for a run of the example with the scripted reflection model."""
        return ["optimize", endpoint.url, *self.optimized]

    @property
    def optimized(self) -> list[object]:
        """How the example is optimised, wherever its server is."""
        return [
            *(*evolve.OPTIMIZE, "--output", "run"),
            *("--trainset", self.folder / "train.jsonl", "--valset", self.folder / "val.jsonl"),
            *("--reflection-lm", "openai/scripted", *self.reached_by),
        ]

    @property
    def reached_by(self) -> list[str]:
        """How the reflection model is reached, which no record holds."""
        return ["--reflection-lm-kwargs", json.dumps({"api_base": self.model_url, "api_key": "none"})]

    @staticmethod
    def command(*arguments: object) -> list[str]:
        return [sys.executable, "-m", "gepa_client", *map(str, arguments)]

    def environment(self, endpoint: ServerEndpoint | None) -> dict[str, str]:
        token = {} if endpoint is None else {"GEPA_TOKEN": endpoint.token}
        return {**os.environ, **token, "COLUMNS": "140", "NO_COLOR": "1"}

    def git(self, *arguments: str) -> str:
        """Return what git prints in the repository."""
        ended = subprocess.run(["git", *arguments], cwd=self.repository, capture_output=True, text=True, check=True)
        return ended.stdout


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    yield made
    made.close()


@pytest.fixture
def world(host: Host, tmp_path: Path, fork_server: ForkServer) -> Iterator[Callable[..., World]]:
    """Makes worlds; their models end with the test."""
    numbers = itertools.count(1)

    def make(language: str, *, short: bool = False) -> World:
        folder = tmp_path / f"world-{next(numbers)}"
        folder.mkdir()
        write_scripts(language, folder / "scripts.json")
        reflection = Reflection(changes(language, short=short))
        url = host.serve(reflection.complete, "/v1/chat/completions").removesuffix("/chat/completions")
        repository = evolve.prepare(language, folder)
        environment = models.enter_context(scripted_anthropic.served(folder / "scripts.json"))
        return World(folder, repository, reflection, url, environment, uuid.uuid4().hex, fork_server)

    with ExitStack() as models:
        yield make
