"""A whole run in sandboxes: the real coding agent reaches its model through the gateway, and its commits come out."""

import json
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

import pytest

from tests.evolution.conftest import Worlds
from tests.evolution.scenario import CHANGES, COMPARE, REMEMBER, TESTS
from tests.evolution.test_code_evolves import users_files
from tests.support.modal_cloud import loopback_modal_beside

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt install bubblewrap")


@dataclass(frozen=True)
class Backend:
    """The flags and variables that select a sandbox backend."""

    flags: tuple[object, ...]
    variables: Mapping[str, str]


@contextmanager
def beside() -> Iterator[Backend]:
    """On this machine."""
    yield Backend(("--sandbox", "bubblewrap"), {})


@contextmanager
def at_modal() -> Iterator[Backend]:
    """At a Modal on loopback, whose sandboxes reach this machine's gateway."""
    with loopback_modal_beside() as cloud:
        cloud.control.has_every_image = True
        port = unused_port()
        cloud.reach(port)
        forwarded = ("--gateway", f"{port}=http://127.0.0.1:{port}")
        yield Backend(("--sandbox", "modal", *forwarded), cloud.env)
        assert cloud.running == []


def unused_port() -> int:
    """A port outside the range of ephemeral ports."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as trying, suppress(OSError):
            trying.bind(("127.0.0.1", port))
            return port


@pytest.mark.repeated
@pytest.mark.timeout(400)
@pytest.mark.parametrize("where", [beside, pytest.param(at_modal, marks=pytest.mark.long)])
def test_the_code_evolves_in_sandboxes_a_bad_change_is_refused_and_model_calls_are_counted(
    world: Worlds, where: Callable[[], AbstractContextManager[Backend]]
) -> None:
    here = world("python")
    (here.repository / "AGENTS.md").write_text("Staged, not committed.\n")
    here.git("add", "AGENTS.md")
    before = users_files(here.repository), here.git("for-each-ref")
    key = here.agent_environment["ANTHROPIC_API_KEY"]
    with where() as backend, tempfile.TemporaryDirectory(prefix="gepa-") as state:  # short, as sockets are in it
        kept = dict.fromkeys(("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"), state)
        arguments = ("optimize", "--repo", here.repository, "--sandboxes", 2, *backend.flags, *here.optimized, "--json")
        printed = here.client(None, *arguments, variables={**kept, **backend.variables, **here.agent_environment})

    events = [json.loads(line) for line in printed.splitlines()]
    rejected = [(event["request"], event["stage"]) for event in events if event["event"] == "mutation_rejected"]
    assert rejected == [(change.title, change.stage) for change in CHANGES["python"] if change.stage is not None]
    assert [event["request"] for event in events if event["event"] == "mutated"] == [COMPARE, REMEMBER]
    assert all(f"stage `{stage}`" in here.reflection.prompts[-1] for _, stage in rejected)
    result = json.loads((here.folder / "run" / "result.json").read_text())
    assert result["val_aggregate_scores"] == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]
    calls = events[-1]["model_calls"]
    assert calls["calls"] >= 10
    assert (calls["input_tokens"], calls["unpriced"]) == (100 * calls["calls"], 0)
    assert not any(key in path.read_text("latin-1") for path in here.folder.glob("run*/**/*") if path.is_file())
    assert (users_files(here.repository), here.git("for-each-ref")) == before, "it is read, and nothing more"

    here.git("reset", "--quiet", "--hard")
    here.client(None, "branches", result["run_id"], "--check-out", "--repo", here.repository)
    assert "before = set()" in (here.repository / "repeats.py").read_text()
    subprocess.run(TESTS["python"], shell=True, cwd=here.repository, check=True)  # noqa: S602  # a constant
