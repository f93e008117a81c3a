"""`evolverpc optimize --evolve`, over real sockets: resumed after a kill, replayed, forked, exported and imported."""

import asyncio
import json
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gepa_client.gepa.litellm_model import Completion
from tests.gepa_client.code_server import CodeServer, Model
from tests.gepa_client.conftest import TIMEOUT_S, Cli, Ran, Start
from tests.gepa_client.run_folder import driver_of, stored
from tests.gepa_client.scripted_server import Host

Serving = Callable[..., CodeServer]
TRAIN = 20


@pytest.fixture
def flags(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Flags of a run with rows in files and a model of its own."""
    for name, numbers in (("train", range(TRAIN)), ("val", range(TRAIN, TRAIN + 8))):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"n": number}) + "\n" for number in numbers))
    model = host.serve(Model().serve, "/v1/chat/completions").removesuffix("/chat/completions")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    kwargs = json.dumps({"api_base": model})
    return [
        *("--trainset", "train.jsonl", "--valset", "val.jsonl", "--check", "off", "--json", "--proposals", "2x2"),
        *("--reflection-lm", "openai/x", "--reflection-lm-kwargs", kwargs, "--reflection-minibatch-size", 6),
        *("--max-metric-calls", 120, "--seed", 5, "--use-merge"),
    ]


def found(ran: Ran) -> list[Any]:
    """Return the reported candidates without the names that contain the run's id."""
    [run_id] = {event["run_id"] for event in ran.events if event["event"] == "started"}
    events = [event for event in ran.events if event["event"] == "candidate"]
    assert events
    shown = [[event["parents"], event["score"], event["metric_calls"], event["texts"]] for event in events]
    return list(json.loads(re.sub("@[0-9a-f]{40}", "", json.dumps(shown).replace(run_id, "RUN"))))


def changes(ran: Ran) -> list[Any]:
    """Return the reported mutations in the order of their numbers."""
    events = [event for event in ran.events if event["event"] in ("mutated", "mutation_rejected")]
    return sorted([event["number"], event["event"], event["request"]] for event in events)


def test_a_killed_run_ends_as_an_undisturbed_one_and_can_be_replayed(
    code_server: Serving, cli: Cli, start: Start, flags: list[object], tmp_path: Path
) -> None:
    server = code_server()
    reply, begun, released = server.replies["apply_mutation"], threading.Event(), threading.Event()

    async def hangs(params: dict[str, Any]) -> Any:
        begun.set()
        await asyncio.to_thread(released.wait, TIMEOUT_S)
        return reply(params)

    server.replies["apply_mutation"] = hangs
    process = start("optimize", server.url, *flags)
    assert begun.wait(TIMEOUT_S)
    os.kill(driver_of(tmp_path), signal.SIGKILL)
    process.wait(TIMEOUT_S)  # the driver has released the run
    released.set()
    resumed = cli("resume", "last", "--json")
    assert resumed.status == 0, resumed.stderr
    with stored(tmp_path) as (_, run_id):
        pass
    assert all(server.made[branch] == 1 for branch in server.branches)
    (tmp_path / "elsewhere").mkdir()
    calm = cli("optimize", code_server().url, *flags, "--store", "elsewhere/runs.db")
    assert calm.status == 0, calm.stderr
    assert found(resumed) == found(calm)
    assert changes(resumed) == changes(calm)
    finished = resumed.event("finished")
    assert finished["mutation_usd"] > 0
    asked = len(server.calls)
    assert cli("export", run_id, "--output", "run.json").status == 0
    assert cli("import", "run.json", "--store", "other.db").status == 0
    replayed = cli("replay", run_id, "--json", "--store", "other.db")
    assert replayed.status == 0, replayed.stderr
    assert (found(replayed), changes(replayed)) == (found(resumed), changes(resumed))
    assert len(server.calls) == asked


def test_an_iteration_whose_change_of_code_was_rejected_states_so(
    code_server: Serving, cli: Cli, flags: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Model, "complete", lambda *_: Completion("```\nLocation: steps\nbreak check\n```", 0.5, 1, 1))
    ran = cli("optimize", code_server().url, *flags, "--evolve", "code", "--max-metric-calls", 20)
    skipped = {(event["reason"], event["empty"]) for event in ran.events if event["event"] == "no_proposal"}
    assert skipped == {("its change of code was rejected", False)}
