"""Whole runs in the test's own process, against servers whose program is made of commits."""

from dataclasses import dataclass, field
from typing import Any

import gepa

from gepa_client import ConcurrentReflection, RemoteAdapter
from gepa_client.gepa.answer_check import AnswerCheck
from gepa_client.journal.run_events import Event
from gepa_client.run import strategies
from gepa_client.settings.run_config import RunConfig
from tests.gepa_client.code_server import Model
from tests.gepa_client.scripted_server import rows


@dataclass
class RunOutcome:
    """The result of a run."""

    candidates: list[dict[str, str]]
    events: list[Event] = field(default_factory=list)

    def named(self, name: str) -> list[Any]:
        """Return the events of this name."""
        return [event for event in self.events if event.event == name]


def optimize(
    adapter: RemoteAdapter, model: Any = None, check: AnswerCheck | None = None, **settings: Any
) -> RunOutcome:
    """Run GEPA as `evolverpc optimize` does, on rows that each need one of six words."""
    given = {"url": "http://127.0.0.1:1", "reflection_lm": "a/model", "max_metric_calls": 150, "seed": 5}
    config = RunConfig(**{"skip_perfect_score": False, "proposals": "2x2", **given, **settings})
    events: list[Event] = []
    texts = ConcurrentReflection(model or Model(), failures=adapter.failures, journal=adapter.journal, check=check)
    arguments = strategies.arguments(config) | strategies.evolution_arguments(config, adapter, texts, events.append)
    result = gepa.optimize(seed_candidate=adapter.seed_candidate, trainset=rows(20), valset=rows(8, 20), **arguments)
    adapter.journal.commit()
    return RunOutcome(result.candidates, events)
