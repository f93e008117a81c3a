"""`evolverpc optimize --evolve`, over real sockets: resumed after a kill, replayed, forked, exported and imported."""

import asyncio
import json
import os
import re
import shlex
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gepa_client.analysis.explanation import explain
from gepa_client.analysis.mutation_outcomes import code_history
from tests.gepa_client.code_server import CodeServer, Model
from tests.gepa_client.conftest import TIMEOUT_S, Cli, Ran, Start
from tests.gepa_client.exported_page import page_data
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


@pytest.mark.long
def test_changes_of_code_are_explained_by_what_reflection_read(
    code_server: Serving, cli: Cli, flags: list[object], tmp_path: Path
) -> None:
    ended = cli("optimize", code_server().url, *flags)
    assert ended.status == 0, ended.stderr
    with stored(tmp_path) as (store, run_id):
        run = store.run(run_id)
        history = code_history(store, run_id, store.candidates(run_id))
        explained = explain(store, run)
        rejected = {
            one.number: one.mutation.entry.rejected
            for one in history.outcomes
            if one.mutation.entry.rejected is not None
        }
    assert explained is not None
    steps = [step for step in explained.steps if step.code is not None and len(step.parents) == 1]
    assert steps
    for step in steps:
        assert step.reason is not None
        made = history.outcome_of(step.reason.mutation or 0)
        assert made is not None
        assert step.candidate in {kept.index for kept in made.kept}
        assert made.mutation.entry.request in step.reason.answers["git_branch"].text
        assert step.reason.after is not None
        assert step.reason.rows[0].before is not None
    refused = {one.mutation: one.why for one in explained.others if one.mutation in rejected}
    assert refused.keys() <= rejected.keys()
    assert all("its change of code was rejected at stage" in why for why in refused.values())
    [folder] = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    data = page_data(folder / "report.html")
    [about] = [event for event in data["events"] if event["type"] == "run"]
    [listing] = [hint["command"] for hint in about["commands"] if " branches " in hint["command"]]
    assert f"branches evolve/{run_id}/NUMBER" in cli(*shlex.split(listing)[1:]).stdout
    answers = {path.rpartition("/")[2]: answer for path, answer in data["answers"].items()}
    assert len(answers["explanation"]["steps"]) == len(explained.steps)
    for step in steps:
        assert step.reason is not None
        assert answers[f"proposal?at={step.reason.number}"]["rows"]
        assert answers[f"transcript?at={step.reason.mutation}"]["entries"][0]["role"] == "change request"
