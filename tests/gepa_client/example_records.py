"""Example run records built from events, for tests of every view of a run."""

from gepa_client.journal.run_events import (
    Budget,
    CandidateFound,
    Event,
    Phase,
    Progress,
    Started,
)
from gepa_client.run.run_view import RunView

NASTY = "\x1b[2J[red]x[/]</pre><img src=x onerror=alert(1)>\u202e```"


def started(**given: object) -> Started:
    facts = {
        "run_id": "r1",
        "store": "runs/evolverpc.db",
        "resumed": False,
        "url": "http://127.0.0.1:1",
        "program": "tickets",
        "program_version": None,
        "server": "gepa-server 1",
        "language": "python",
        "components": ["rules"],
        "splits": {"train": 30, "val": 12},
        "max_metric_calls": 3000,
        "proposer": "the program",
        "config": {},
        "hash_seed": "0",
    }
    return Started.model_validate(facts | given)


def candidate(index: int, score: float, parents: list[int], text: str, best: int, calls: int) -> CandidateFound:
    return CandidateFound(
        seconds=index, index=index, parents=parents, iteration=index, score=score, texts={"rules": text},
        front=[best], best=best, metric_calls=calls,
    )  # fmt: skip


def example_record(*more: Event) -> RunView:
    record = RunView()
    for event in (
        started(),
        Phase(phase="seed"),
        candidate(0, 0.25, [], "a\nb", 0, 12),
        Progress(evaluated=12, in_flight=8, seconds=1.0),
        Phase(phase="optimizing", seconds=1.0),
        candidate(1, 0.5, [0], "a\nc", 1, 60),
        candidate(2, 0.75, [0, 1], "a\nc\nd", 2, 110),
        Budget(metric_calls=110, seconds=3.0),
        Progress(evaluated=112, in_flight=5, seconds=3.0),
        *more,
    ):
        record.apply(event)
    return record
