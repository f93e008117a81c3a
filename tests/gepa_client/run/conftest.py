"""A reflection model for the program of a run, and whole runs that several tests compare with."""

import json
from pathlib import Path

import pytest

from tests.gepa_client.conftest import Cli, Ran, commands_in
from tests.gepa_client.scripted_server import Handler, Host
from tests.gepa_client.stored_run import Made, put
from tests.gepa_client.word_program import Script
from tests.support.forked_client import ForkServer


def model_arguments(host: Host, complete: Handler, name: str = "openai/x") -> list[str | int]:
    """Serve a reflection model and return the arguments that name it."""
    url = host.serve(complete, "/v1/chat/completions").removesuffix("/chat/completions")
    return ["--reflection-lm", name, "--reflection-lm-kwargs", json.dumps({"api_base": url, "api_key": "hush"})]


@pytest.fixture
def model(host: Host, words: Script) -> list[str | int]:
    """The arguments for a reflection model."""
    return model_arguments(host, words.complete)


def run_alone(script: Script, folder: Path, fork_server: ForkServer, *arguments: object) -> Ran:
    """A run in a folder of its own, whose server is away once it has ended."""
    host = Host()
    try:
        url = host.serve(script.server().handle)
        ran = commands_in(folder, fork_server)("optimize", url, *arguments, "--check", "off", "--json")
    finally:
        host.close()
    assert ran.status == 0, ran.stderr
    return ran


def not_begun(cli: Cli, folder: Path, url: str, *settings: object) -> str:
    """Return the id of a run that no process has driven yet."""
    put(folder / "runs" / "evolverpc.db", Made())
    forked = cli("fork", "last", url, "--at", 0, "--max-metric-calls", 5, *settings, "--json")
    assert forked.status == 0, forked.stderr
    return str(json.loads(forked.stdout)["id"])
