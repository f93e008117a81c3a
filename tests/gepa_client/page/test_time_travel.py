"""The page at a place of the journal shows what `evolverpc replay --until` shows there."""

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gepa_client.journal.store import open_store
from gepa_client.steering.user_requests import post_request
from tests.gepa_client.conftest import TIMEOUT_S, Cli, Serve, Start
from tests.gepa_client.page.page_state import begun, read_run, replayed_state
from tests.gepa_client.word_program import WORDS, Script, proposed, rows
from tests.support.rounds import ALL

PLACES = 10 if ALL else 2
NAME = "rules, short"


def wavering(seed: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A proposer that adds a word, takes one away, or changes nothing."""
    chosen = random.Random(seed)

    def propose(params: dict[str, Any]) -> dict[str, Any]:
        kind = chosen.choice(("more", "less", "other", "same"))
        if kind == "more":
            return proposed(params)
        texts: dict[str, str] = {}
        for component in params["components_to_update"]:
            words = params["candidate"][component].split()
            if kind == "less":
                words = words[1:]
            elif kind == "other":
                words = [*words[1:], chosen.choice(WORDS)]
            texts[component] = " ".join(words)
        return {"texts": texts}

    return propose


def half_scored(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
    """The share of a row's words that the texts hold; the row's own counts most."""
    words = set(" ".join(candidate.values()).split())
    score = 0.7 * (data["need"] in words) + 0.3 * len(words & set(WORDS)) / len(WORDS)
    if "teal" in words and data["need"] == "red":
        return {"status": "program_error", "score": None, "output": None, "seconds": 0.001,
                "error": {"type": "ValueError", "message": "teal and red"}}  # fmt: skip
    return {"status": "ok", "score": score, "output": "o", "feedback": f"needs {data['need']}", "seconds": 0.001}


ASKED: tuple[dict[str, Any], ...] = (
    {"kind": "propose", "texts": {NAME: "red green pink"}},
    {"kind": "propose", "texts": {NAME: "blue"}},
    {"kind": "pin", "candidate": 0},
    {"kind": "drop", "candidate": 1},
)


@pytest.mark.timeout(180)
def test_the_page_of_a_steered_run_with_races_equals_its_replay(
    serve: Serve, start: Start, cli: Cli, tmp_path: Path
) -> None:
    script = Script(
        seed={NAME: "red green"},
        datasets={"train": rows(30), "val": rows(8, 100)},
        evaluate=half_scored,
        propose=wavering(3),
        delay_s=0.03,
    )
    store = str(tmp_path / "runs.db")
    flags = ("--max-metric-calls", 200, "--validation", "race", "--store", store, "--check", "off")
    running = start("optimize", serve(script), *flags)
    run_id = begun(store, candidates=2)
    with closing(open_store(store)) as opened:
        for action in ASKED:
            post_request(opened, run_id, action)
    followed = read_run(store, run_id)
    running.communicate(TIMEOUT_S)
    page = read_run(store, run_id)
    proposals = [each for each in page.of("proposal") if not each["merge"]]
    assert {name for each in proposals for name in each["components"]} == {NAME}
    assert all(each["after"] is not None for each in proposals if each["outcome"] in ("kept", "rejected", "raced_out"))
    position = page.one("position")
    assert position is not None
    steers = {each["key"]: each for each in page.of("steer")}
    assert {each["key"]: each for each in followed.of("steer")} == steers
    listed = {
        each.partition("  ")[0]: each for each in cli("steer", "list", run_id, "--store", store).stdout.splitlines()
    }
    assert [steers[key]["action"] for key in listed] == [action["kind"] for action in ASKED]
    assert all(listed[key].endswith(f": {each['outcome']}") for key, each in steers.items()), listed
    assert all("entry" in each["outcome"] for each in steers.values())
    assert sum("minibatch" in each["outcome"] or "candidate" in each["outcome"] for each in steers.values()) == 2
    taken = sorted(each["at"] for each in steers.values())
    for number in [taken[-1], taken[-1] + 5, position["end"], *random.Random(1).sample(range(position["end"]), PLACES)]:
        shown = cli("replay", run_id, "--until", number, "--store", store, "--json")
        assert page.at(number) == replayed_state(shown.events[:-1]), number
