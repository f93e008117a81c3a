"""A run as a store keeps it, written by hand through the store, for tests of everything that reads one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gepa_client.journal.entries import (
    CANDIDATE,
    EVENTS,
    PROCESSES,
    SEARCH,
    START,
    Attempt,
    CandidateRecord,
    Claim,
    Entry,
    Row,
    StoredRun,
)
from gepa_client.journal.requests import digest_of, evaluate_key
from gepa_client.journal.store import Store, open_store
from gepa_client.journal.stored_fields import OVER
from gepa_client.settings.run_config import RunConfig
from tests.gepa_client.example_records import started
from tests.gepa_client.scripted_server import failed, ok

RUN_ID = "20260102-030405-1f3a"
URL = "http://127.0.0.1:9"
DISCOVERY: dict[str, Any] = {
    "protocol_versions": ["1"],
    "server": {"name": "scripted", "version": "0", "language": "python", "instance_id": "first"},
    "program": {"name": "words", "version": "2", "components": [{"name": "rules"}], "seed_candidate": {"rules": ""}},
    "capabilities": [],
    "limits": {"max_concurrency": 8, "max_batch_size": 100, "max_request_bytes": 2**24},
}
IDENTITY = {
    "gepa": "0.1.4",
    "replay": 1,
    "hash_seed": "0",
    "settings": {"seed": 0},
    "program": {"version": "1"},
    "seed_candidate": "ab",
    "components": ["rules"],
    "whole_batches": False,
    "scorer": {"digest": "ef"},
    "deterministic": True,
    "data": {"train": "cd"},
}
TEXTS = ("", "red", "red\ngreen", "blue", "red\ngreen\nblue")
PARENTS: tuple[list[int], ...] = ([], [0], [1], [0], [2, 3])
NEEDS = ("red", "green", "blue", "red")
"""What each validation row needs in the text; candidates score 1 where they hold it."""


UNCLAIMED = Claim(None, 0)


@dataclass
class Made:
    """Builds a run of five candidates on four validation rows, after three training rows."""

    run_id: str = RUN_ID
    name: str | None = None
    status: str = "completed"
    reason: str | None = None
    claim: Claim = UNCLAIMED
    identity: dict[str, Any] | None = field(default_factory=lambda: {"gepa": "0.1.4", "hash_seed": "0"})
    config: dict[str, Any] = field(default_factory=dict)
    texts: Sequence[str] = TEXTS
    held: bool = False
    broken: frozenset[tuple[int, int]] = frozenset()
    """(candidate, row position) on which the program failed."""

    absent: frozenset[tuple[int, int]] = frozenset()
    """(candidate, row position) of which nothing is recorded."""

    def row(self, position: int) -> dict[str, Any]:
        """A validation row as `start` records it."""
        data = {"need": NEEDS[position], "text": f"row {position}"}
        return {"id": str(position), "split": "val", "data": data} if self.held else {"id": str(position), "data": data}

    def wire(self, position: int) -> dict[str, Any]:
        """The same as it goes over the wire."""
        row = self.row(position)
        return {"id": row["id"], "split": "val"} if self.held else row

    def score(self, index: int, position: int) -> float:
        if (index, position) in self.broken:
            return 0.0
        return 1.0 if NEEDS[position] in self.texts[index].split() else 0.0

    def result(self, index: int, position: int) -> dict[str, Any]:
        """An `ExampleResult`."""
        if (index, position) in self.broken:
            return failed(seconds=0.1)
        return ok(self.score(index, position), self.texts[index], seconds=0.1)

    def rows(self) -> list[Row]:
        """The journal and the attempts."""
        training = [{"id": str(at), "data": {"need": "red"}} for at in range(3)]
        validation = [self.row(position) for position in range(len(NEEDS))]
        first = len(training)
        rows: list[Row] = [
            entry_of(START, 0, "discover", "d", DISCOVERY),
            entry_of(START, 1, "rows", "t", training),
            entry_of(START, 2, "rows", "v", validation),
        ]
        number, pool = 0, list[CandidateRecord]()
        for index, text in enumerate(self.texts):
            if index:
                rows.append(entry_of(SEARCH, number, "proposal", f"p{index}", {"rules": text}))
                rows += _attempt(
                    number, "completion", "ok", {"input_tokens": 50, "output_tokens": 9, "cost_usd": 0.002}
                )
                number += 1
            for position in range(len(NEEDS)):
                if (index, position) in self.absent:
                    continue
                row = self.wire(position)
                digest = evaluate_key(digest_of({"rules": text}), digest_of(row), row["id"], trace=False).digest
                result = self.result(index, position)
                rows.append(entry_of(SEARCH, number, "evaluate", digest, result))
                rows += _attempt(number, "evaluate", result["status"], {"cost_usd": 0.01})
                number += 1
            pool.append(
                CandidateRecord(
                    index=index,
                    texts={"rules": text},
                    parents=PARENTS[index],
                    iteration=index,
                    number=number,
                    score=sum(self.score(index, position) for position in range(len(NEEDS))) / len(NEEDS),
                    scores={str(first + position): self.score(index, position) for position in range(len(NEEDS))},
                    metric_calls=index * 6,
                )
            )
        begun = started(
            program_version="2", server="scripted 0", language="python", url=URL, splits={"train": 3, "val": 4}
        )
        fields = begun.model_dump(mode="json", exclude_defaults=True)
        return [*rows, *decisions(pool), entry_of(PROCESSES, 0, begun.event, "", fields)]

    def run(self) -> StoredRun:
        """The run's own record."""
        best = max(candidates_of(self.rows()), key=lambda one: one.score)
        config = RunConfig(url=(URL,), max_metric_calls=40, seed=3).recorded() | self.config
        return StoredRun(
            id=self.run_id,
            name=self.name,
            status=self.status,
            reason=self.reason,
            config=config,
            identity=self.identity,
            counters={"iteration": 4, "metric_calls": 30, "spent_usd": 0.208, "active_seconds": 12.5},
            best={"index": best.index, "score": best.score, "texts": best.texts},
            output=None,
            parent=None,
            claim=self.claim,
            driver="pid 12 on here" if self.claim.owner else None,
            program="words",
            created="2026-01-02T03:04:05.000+00:00",
            started=None if self.status == "pending" else "2026-01-02T03:04:06.000+00:00",
            completed="2026-01-02T04:04:05.000+00:00" if self.status in OVER else None,
            updated="2026-01-02T04:04:05.000+00:00",
        )

    def into(self, store: Store) -> StoredRun:
        """Write it; return the stored run."""
        store.create(self.run(), self.rows())
        return store.run(self.run_id)


def put(path: Path | str, *runs: Made) -> None:
    """Write runs into the store at `path`."""
    store = open_store(str(path))
    try:
        for run in runs:
            run.into(store)
    finally:
        store.close()


def entry_of(part: str, number: int, kind: str, digest: str, answer: Any) -> Entry:
    return Entry(part, number, kind, digest, f"{kind} {number}", orjson.dumps(answer))


def decisions(pool: Sequence[CandidateRecord]) -> list[Entry]:
    """Return the events by which these candidates entered the pool."""
    best = [max(pool[: at + 1], key=lambda one: one.score).index for at in range(len(pool))]
    return [
        entry_of(
            EVENTS,
            kept.index,
            CANDIDATE,
            "",
            {**asdict(kept), "at": kept.number, "metric_calls_before": kept.metric_calls, "front": [at], "best": at},
        )
        for kept, at in zip(pool, best, strict=True)
    ]


def candidates_of(rows: Sequence[Row]) -> list[CandidateRecord]:
    """Return the candidates that entered the pool by the events among these rows."""
    found = [row for row in rows if isinstance(row, Entry) and row.kind == CANDIDATE]
    return [CandidateRecord.of(orjson.loads(row.answer)) for row in found]


def _attempt(number: int, kind: str, outcome: str, usage: Mapping[str, Any]) -> list[Row]:
    return [Attempt(SEARCH, number, 1, kind, URL, "first", outcome, 0.1, dict(usage))]
