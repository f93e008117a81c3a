"""Users steer runs while they run: what they asked for is recorded, and replayed, resumed and forked as it was."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from gepa_client import load_result
from gepa_client.journal.entries import REFLECTIVE_DATASET, SEARCH, SteeringRequest
from gepa_client.journal.history import entries
from gepa_client.journal.steer_entries import Pin, Propose, Withdraw
from gepa_client.journal.store import open_store
from gepa_client.page.proposal_details import proposals
from gepa_client.steering.user_requests import request
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.exported_page import page_data, page_text
from tests.gepa_client.run.conftest import not_begun
from tests.gepa_client.word_program import Script


def test_texts_by_hand_are_evaluated_as_any_proposal_and_the_run_states_whose_they_are(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    run = not_begun(cli, tmp_path, serve(words))
    (tmp_path / "text.txt").write_text("red green blue pink")
    asked = cli("steer", "propose", run, "--component", "rules", "--text-file", "text.txt", "--parent", 0)
    assert (asked.status, asked.stderr) == (0, "")
    assert "waiting: propose rules of candidate 0 by hand" in asked.stdout
    assert f"next: evolverpc resume {run}" in asked.stdout
    assert cli("steer", "budget", run, "--max-metric-calls", 90).status == 0
    ended = cli("resume", run, "--past-perfect", "--json")
    assert ended.status == 0, ended.stdout
    assert ended.event("finished")["reason"] == "max_metric_calls of 90 is reached"
    first = [event for event in ended.events if event["event"] == "candidate"][1]
    assert (first["texts"], first["parents"]) == ({"rules": "red green blue pink"}, [0])
    shown = json.loads(cli("show", run, "--json").stdout)
    assert shown["config"]["max_metric_calls"] == 90
    assert [(each["number"], each["action"]["kind"]) for each in shown["steered"]] == [(12, "propose"), (13, "budget")]
    folder = Path(ended.event("summary")["output"])
    whys = [event["why"] for event in page_data(folder / "report.html")["events"] if event["event"] == "proposal"]
    author = shown["steered"][0]["author"]
    assert whys[0].startswith(f"proposed by hand ({author}), better on its minibatch")
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["by_hand"] == {"requests": 2, "texts": 1, "best_has_them": True}
    assert "the run was steered by 2 requests of users, and the best candidate has" in certificate["statement"]
    report = page_text(folder / "report.html")
    assert "2 requests by hand: 1 propose, 1 budget" in report
    over = cli("steer", "pin", run, 0)
    assert (over.status, over.stdout) == (2, "")
    assert "is completed, and no process drives it" in over.stderr


def test_a_candidate_that_is_dropped_is_neither_a_parent_nor_the_best_anywhere(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    url = serve(words)
    first = cli("optimize", url, "--max-metric-calls", 70, "--past-perfect", "--check", "off", "--json")
    best = json.loads((Path(first.event("summary")["output"]) / "result.json").read_text())["best_idx"]
    assert best > 0
    with closing(open_store(str(tmp_path / "runs" / "evolverpc.db"))) as store:
        run = store.runs()[0].id
        for index in (best, best, *range(30)):  # the last ones are unknown
            name, action = f"drop-{index}-{len(store.requests(run))}", {"kind": "drop", "candidate": index}
            store.add_request(run, SteeringRequest(name, action, "ann@desk", "now"))
        ended = cli("resume", run, "--max-metric-calls", 130, "--json")
        assert ended.status == 0, ended.stdout
        answered = {each.id.split("-")[1]: each for each in store.requests(run)}
        loaded = load_result(run, store.url)
        reasons = {each.reason for each in answered.values() if each.outcome == "refused"}
        kept = store.candidates(run)
    assert all(each.outcome is not None for each in answered.values())
    assert any("is the only one left" in (reason or "") for reason in reasons)
    dropped = {each.index for each in kept if each.dropped is not None}
    left = {each.index for each in kept} - dropped
    assert best in dropped
    after = [each for each in kept if each.index > max(dropped)]
    assert after
    assert not {parent for each in after for parent in each.parents} & dropped
    found = [event for event in ended.events if event["event"] == "candidate"]
    assert not {event["best"] for event in found if event["index"] > max(dropped)} & dropped
    folder = Path(ended.event("summary")["output"])
    result = json.loads((folder / "result.json").read_text())
    shown = json.loads(cli("show", run, "--json").stdout)
    chosen = max(left, key=lambda index: (kept[index].score, -index))
    certificate = json.loads((folder / "certificate.json").read_text())
    named = result["best_idx"], shown["best_index"], shown["best"]["index"], loaded.best_idx, certificate["candidate"]
    assert set(named) == {chosen}
    assert json.loads((folder / "best_candidate.json").read_text()) == kept[chosen].texts
    assert not {each["index"] for each in shown["candidates"] if each["front"]} & dropped
    assert cli("replay", run, "--json").found == ended.found


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"kind": "propose", "texts": {"rules": "x" * 1_000_001}}, "at most 1000000 characters"),
    ({"kind": "propose", "texts": {"rules": "y \ud800"}}, "character 2 is half of a surrogate pair"),
    ({"kind": "propose", "texts": {"\0<script>": "a"}}, "no component"),
    ({"kind": "propose", "texts": {"rules": "a"}, "parent": 99}, "has no candidate 99"),
    ({"kind": "budget", "max_cost_usd": float("nan")}, "finite number"),
    ({"kind": "nonsense"}, "does not match any of the expected tags"),
    ({}, "Unable to extract tag"),
]


def test_hints_are_in_prompts_as_long_as_they_are_in_force_and_what_cannot_be_taken_is_refused_with_the_reason(
    serve: Serve, cli: Cli, words: Script, model: list[str | int], tmp_path: Path
) -> None:
    words.seed = {"rules": "", "style": ""}
    run = not_begun(cli, tmp_path, serve(words), *model)
    assert cli("steer", "hint", run, "Prefer warm colours.").status == 0
    assert cli("steer", "hint", run, "Think of the sea.", "--proposals", 2).status == 0
    with closing(open_store(str(tmp_path / "runs" / "evolverpc.db"))) as store:
        for at, (action, _) in enumerate(HOSTILE):  # as another version, or another program, may write them
            store.add_request(run, SteeringRequest(f"r{at}", action, "\ud800<b>\x1b[31m", "\0"))
        with ThreadPoolExecutor(4) as pool:
            request(store, run, Propose(texts={"rules": "sea"}), request_id="sea", by="ann")
            request(store, run, Withdraw(request="sea"), request_id="no", by="ann")
            pin = Pin(candidate=0)
            same = [pool.submit(request, store, run, pin, request_id="both", by="two@desks") for _ in range(8)]
            assert {each.result().id for each in same} == {"both"}
    words.seen.clear()
    limits = ["--max-metric-calls", 80, "--past-perfect", "--reflection-lm-kwargs", model[-1]]
    ended = cli("resume", run, *limits, "--json")
    assert ended.status == 0, ended.stdout + ended.stderr
    prompts = [body["messages"][0]["content"] for body in words.calls("complete")]
    heading = "\n\n# Hints from the person who runs this optimization\n\nPrefer warm colours."
    assert all(heading in prompt for prompt in prompts)
    assert ["Think of the sea." in prompt for prompt in prompts] == [True] * 2 + [False] * (len(prompts) - 2)
    assert cli("replay", run, "--json").found == ended.found
    with closing(open_store(str(tmp_path / "runs" / "evolverpc.db"))) as store:
        begun = [entry.number for entry in entries(store, run, SEARCH) if entry.kind == REFLECTIVE_DATASET]
        shown = [one for each in proposals(store, run, begun).values() for one in each.prompts]
        answered = {each.id: each for each in store.requests(run)}
    assert sorted(one.prompt.text for one in shown if one.prompt is not None) == sorted(prompts)
    assert [one.hints for one in shown[1:3]] == [
        ["Prefer warm colours.", "Think of the sea."],
        ["Prefer warm colours."],
    ]
    assert answered["both"].outcome == "taken"
    for at, (action, reason) in enumerate(HOSTILE):
        assert answered[f"r{at}"].outcome == "refused", action
        assert reason in (answered[f"r{at}"].reason or ""), action
    taken = [event for event in ended.events if event["event"] == "steered" and event["refused"] is None]
    assert [event["action"] for event in taken] == ["hint", "hint", "propose", "withdraw", "pin"]
    listed = cli("steer", "list", run).stdout
    assert "withdrawn by ann" in listed
    assert "\x1b" not in listed
