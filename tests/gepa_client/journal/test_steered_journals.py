"""Runs that users steer at random, killed and resumed, replay and fork to the same result, in every store."""

import json
import os
import random
import signal
from contextlib import closing
from typing import Any

import pytest

from gepa_client.errors import SteeringRefused
from gepa_client.journal.entries import SEARCH, STEER
from gepa_client.journal.steer_entries import ClearHints, Drop, Hint, Pin, Propose, SetBudget, Unpin
from gepa_client.journal.store import open_store
from gepa_client.steering.request_queue import request
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.run.steered import found, result_of, steered
from tests.gepa_client.word_program import WORDS, Script, rows, scored
from tests.support.rounds import rounds

SEED = {"rules": "red", "style": "plain"}
CALLS = 110
KINDS = ("sqlite", "mongo")


class Users:
    """Steer a run at random while the program evaluates its examples, and kill its driver at some of them."""

    def __init__(self, store: str, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.evaluated = 0
        self.asked = 0
        self.kills = sorted(self.random.sample(range(30, CALLS), 2))

    def evaluate(self, row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        """Score an example as the program does, after something has happened to the run."""
        self.evaluated += 1
        if self.evaluated > 20 and self.random.random() < 0.12:
            self.ask()
        if self.kills and self.evaluated == self.kills[0]:
            self.kills.pop(0)
            with closing(open_store(self.store)) as store:
                if (driver := store.runs()[0].driver) is not None:
                    os.kill(int(driver.split()[1]), signal.SIGKILL)
        return scored(row, candidate)

    def ask(self) -> None:
        """Make a request, which the run may refuse."""
        draw = self.random
        words = " ".join(draw.sample(WORDS, 2))
        component = draw.choice([*SEED, *SEED, "unknown"])
        action = draw.choice(
            [
                Propose(texts={component: words}, parent=draw.choice([None, 0, 1, 2])),
                Propose(texts={"rules": words, "style": words[::-1]}),
                Pin(candidate=draw.randrange(4)),
                Unpin(),
                Drop(candidate=draw.randrange(4)),
                Hint(text=words, proposals=draw.choice([None, 2])),
                ClearHints(),
                SetBudget(max_metric_calls=CALLS + draw.randrange(-40, 40)),
            ]
        )
        with closing(open_store(self.store)) as store:
            try:
                request(store, store.runs()[0].id, action)
            except SteeringRefused:
                return
        self.asked += 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "store_url"), [(seed, KINDS[(seed + 1) % 2]) for seed in rounds(20)], indirect=["store_url"]
)
def test_a_run_that_is_steered_at_random_replays_resumes_and_forks_to_the_same_result(
    seed: int, store_url: str, serve: Serve, cli: Cli
) -> None:
    users = Users(store_url, seed)
    store_flag = ("--store", store_url)
    words = Script(
        seed=SEED,
        datasets={"train": rows(30), "val": rows(12, 100)},
        evaluate=users.evaluate,
        delay_s=0.02,
        max_concurrency=6,
    )
    url = serve(words)
    settings = ["--max-metric-calls", CALLS, "--past-perfect", "--use-merge", "--seed", seed, "--validation", "race"]
    ran = cli("optimize", url, *settings, "--check", "off", "--json", *store_flag)
    while ran.status != 0:
        assert "SIGKILL" in ran.event("finished")["reason"]
        ran = cli("resume", "last", "--json", *store_flag)
    assert users.asked > 5
    taken = steered(ran)
    assert len(taken) >= 3
    with closing(open_store(users.store)) as store:
        run = store.runs()[0]
        assert not store.requests(run.id, waiting=True)
        numbers = [entry.number for entry in store.entries(run.id, SEARCH, limit=9999) if entry.kind == STEER]
        ids = [each.id for each in store.requests(run.id) if each.outcome == "taken"]
    assert numbers == [number for number, *_ in taken]
    assert len(ids) == len(set(ids)) == len([kind for _, kind, *_ in taken if kind != "withdraw"])
    replayed = cli("replay", run.id, "--json", *store_flag)
    assert (found(replayed), steered(replayed)) == (found(ran), taken)
    calls = len(words.calls("evaluate"))
    end = json.loads(cli("show", run.id, "--json", *store_flag).stdout)["entries"][SEARCH]
    assert cli("fork", run.id, "--at", end, "--json", *store_flag).status == 0
    forked = cli("resume", "last", "--json", *store_flag)
    assert forked.status == 0, forked.stdout
    assert (found(forked), steered(forked)) == (found(ran), taken)
    assert result_of(forked) == result_of(ran)
    assert len([params for params in words.calls("evaluate")[calls:] if "search" in params["call_id"]]) == 0
