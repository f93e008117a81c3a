"""The repeats example evolving: its own repository and server, the real agent, and models that follow a script."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox_runtime import ServerEndpoint
from tests.evolution.scenario import CHANGES, TESTS, Reflection, scripts_of
from tests.gepa_client.conftest import host
from tests.gepa_client.scripted_server import Host
from tests.support import scripted_anthropic
from tests.support.forked_client import ForkServer

__all__ = ["host"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "repeats"
RUN_S = 300.0

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
    fork_server: ForkServer

    def serving(self) -> AbstractContextManager[ServerEndpoint]:
        """`with world.serving() as endpoint`: a server beside the program."""
        variables = {**self.agent_environment, "XDG_CACHE_HOME": str(self.folder / "cache")}
        return self.fork_server.running_server(cwd=self.repository, env=variables)

    def client(
        self,
        endpoint: ServerEndpoint | None,
        *arguments: object,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Return what a `evolverpc` command prints, run in `folder`; it must succeed."""
        ended, stdout, stderr = self.fork_server.run(
            [str(argument) for argument in arguments],
            folder=self.folder,
            environment={**self.environment(endpoint), **(variables or {})},
            timeout_s=RUN_S,
        )
        assert ended == 0, (stdout + stderr).decode()
        return stdout.decode()

    def optimize(self, endpoint: ServerEndpoint, *flags: object) -> list[dict[str, Any]]:
        """The events of a run of the example with the scripted reflection model; `flags` override the example's."""
        printed = self.client(endpoint, "optimize", endpoint.url, *self.optimized, *flags, "--json")
        return [json.loads(line) for line in printed.splitlines()]

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

    def environment(self, endpoint: ServerEndpoint | None) -> dict[str, str]:
        token = {} if endpoint is None else {"GEPA_TOKEN": endpoint.token}
        return {**os.environ, **token, "COLUMNS": "140", "NO_COLOR": "1"}

    def git(self, *arguments: str) -> str:
        """Return what git prints in the repository."""
        ended = subprocess.run(["git", *arguments], cwd=self.repository, capture_output=True, text=True, check=True)
        return ended.stdout


@dataclass(frozen=True)
class Worlds:
    """Makes worlds; their models end with `models`."""

    folder: Path
    host: Host
    models: ExitStack
    fork_server: ForkServer

    def __call__(self, language: str) -> World:
        """The example in a language."""
        scripts = scripts_of(CHANGES[language], TESTS[language])
        return self.of(Reflection(CHANGES[language]), scripts, lambda at: evolve.prepare(language, at))

    def of(self, reflection: Reflection, scripts: Sequence[dict[str, Any]], prepare: Callable[[Path], Path]) -> World:
        """A program whose repository `prepare` makes in a folder, beside its rows; `scripts`: of the agent's model."""
        folder = Path(tempfile.mkdtemp(prefix="world-", dir=self.folder))
        (folder / "scripts.json").write_text(json.dumps(scripts))
        url = self.host.serve(reflection.complete, "/v1/chat/completions").removesuffix("/chat/completions")
        repository = prepare(folder)
        environment = self.models.enter_context(scripted_anthropic.served(folder / "scripts.json"))
        return World(folder, repository, reflection, url, environment, self.fork_server)


@pytest.fixture
def world(host: Host, tmp_path: Path, fork_server: ForkServer) -> Iterator[Worlds]:
    """Makes worlds; their models end with the test."""
    with ExitStack() as models:
        yield Worlds(tmp_path, host, models, fork_server)
