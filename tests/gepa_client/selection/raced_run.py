"""A run of GEPA with racing in the test's own process, through the client, against a scripted server."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import gepa
from gepa.core.callbacks import CandidateRejectedEvent

from gepa_client import ProgramReflection, RemoteAdapter
from gepa_client.gepa.rows import Row, RowLoader
from gepa_client.run import strategies
from gepa_client.run.search_events import ProposalWatcher
from gepa_client.selection.race import RacedSelection
from gepa_client.settings.run_config import RunConfig
from gepa_client.steering.steering import ActiveRequests
from protocol import Example
from tests.gepa_client.scripted_server import Host, ScriptedServer, ok

WORDS = ("red", "green", "blue", "pink", "grey", "teal")
TRAIN, VAL = 20, 42


@dataclass
class RacedRun:
    """What a run came to. `rejected`: why, and how a proposal lost its race, if it did."""

    candidates: list[dict[str, str]]
    parents: list[list[int | None]]
    scores: list[dict[int, float]]
    found_at: list[int]
    metric_calls: int | None
    rejected: list[tuple[str, dict[str, Any] | None]]

    @property
    def lost(self) -> list[dict[str, Any]]:
        """The races that were lost."""
        return [race for _, race in self.rejected if race is not None]

    def in_full(self) -> tuple[Any, ...]:
        """Everything but the name of the strategy that selected the proposals."""
        reasons = [(reason.split(" (")[0], race) for reason, race in self.rejected]
        return self.candidates, self.parents, self.scores, self.found_at, self.metric_calls, reasons


@dataclass
class Program:
    """Learns words; each row needs one. `lures`: training rows that a text with `lure` solves, and it solves no others.

    With lures about every second proposal passes its minibatch and is then worse than its parent.
    """

    slots: int = 4
    lures: int = 0
    seed: str = "red green blue"
    whole_batches: bool = False
    server: ScriptedServer = field(default_factory=ScriptedServer)

    def serve(self, host: Host) -> str:
        """Return the URL of a server of it."""
        self.server.seed_candidate = {"rules": self.seed}
        self.server.limits |= {"max_concurrency": self.slots, "whole_batches": self.whole_batches}
        self.server.evaluate_one = self.evaluated
        self.server.replies |= {"make_reflective_dataset": records, "propose_new_texts": self.proposed}
        return host.serve(self.server.handle)

    def evaluated(self, candidate: dict[str, str], example: Example, _traced: bool) -> dict[str, Any]:
        """Score 1 if the candidate has the row's word, with two objectives."""
        assert isinstance(example.data, dict)
        word, words = example.data["need"], candidate["rules"].split()
        score = float(example.data["n"] < self.lures if "lure" in words else word in words)
        return ok(score, output=[word, score], objective_scores={"found": score, "short": 1 / (1 + len(words))})

    def proposed(self, params: dict[str, Any]) -> dict[str, Any]:
        """Add the first word that is missing; or `lure`, if the first record needs one of half of the words."""
        known = params["candidate"]["rules"].split()
        wanted = [record["Feedback"] for record in params["reflective_dataset"]["rules"]]
        fresh = ["lure"] if self.lures and wanted[0] in WORDS[::2] else [word for word in wanted if word not in known]
        return {"texts": {"rules": " ".join([*known, *fresh[:1]])}}


def records(params: dict[str, Any]) -> dict[str, Any]:
    """The word that each example needs."""
    return {"dataset": {"rules": [{"Feedback": result["output"][0]} for result in params["eval_batch"]["results"]]}}


def rows(count: int, first: int = 0) -> RowLoader:
    """Rows that need the words in turn."""
    data = [Row(str(at), {"need": WORDS[at % len(WORDS)], "n": at}) for at in range(first, first + count)]
    return RowLoader(data, first)


def run(
    adapter: RemoteAdapter, *, val: RowLoader | None = None, dropped: Set[int] = frozenset(), **settings: Any
) -> RacedRun:
    """Run GEPA with these settings, as the optimizer does; `dropped`: candidates that no race compares with."""
    given = {"max_metric_calls": 300, "validation": "race", "past_perfect": True} | settings
    config = RunConfig(url=("http://127.0.0.1:1",), **given)
    adapter.propose_new_texts = None
    reflection = ProgramReflection(adapter)
    arguments = strategies.arguments(config) | strategies.evolution_arguments(config, adapter, reflection, print)
    val = val or rows(VAL, TRAIN)
    race = strategies.racing(arguments, adapter, val, config, dropped)
    proposals = ProposalWatcher(
        lambda _event: None,
        adapter,
        ActiveRequests(),
        arguments["reflection_strategy"],
        arguments["selection_strategy"],
    )
    arguments |= {"reflection_strategy": proposals, "selection_strategy": proposals}
    rejected = Rejections(proposals, race)
    arguments["callbacks"] = [*arguments["callbacks"], proposals, rejected]
    train = val if val.first_id == 0 else rows(TRAIN)
    result = gepa.optimize(seed_candidate=adapter.seed_candidate, trainset=train, valset=val, **arguments)
    adapter.journal.commit()
    return RacedRun(
        result.candidates,
        result.parents,
        result.val_subscores,
        result.discovery_eval_counts,
        result.total_metric_calls,
        rejected.found,
    )


@dataclass
class Rejections:
    """Notes what GEPA rejects."""

    proposals: ProposalWatcher
    race: RacedSelection | None
    found: list[tuple[str, dict[str, Any] | None]] = field(default_factory=list)

    def on_candidate_rejected(self, event: CandidateRejectedEvent) -> None:
        made = self.proposals.next_rejected()
        race = self.race.rejecting(made.made).get("race") if self.race is not None and made is not None else None
        self.found.append((event["reason"], None if race is None else race.model_dump()))
