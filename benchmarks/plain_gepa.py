"""GEPA in one process on a program of functions: the run that the client has over HTTP, at a small part of its cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch
from gepa.core.callbacks import IterationStartEvent, ValsetEvaluatedEvent

Candidate = dict[str, str]
Data = dict[str, Any]
Found = list[tuple[int, Candidate]]
"""(metric calls, texts) whenever a run has a new best candidate, the seed candidate first."""


@dataclass
class FunctionsAdapter:
    """GEPA's adapter for a module with `run`, `score` and `propose_new_texts`, with the records of the server."""

    program: ModuleType

    def evaluate(
        self, batch: Sequence[Data], candidate: Candidate, capture_traces: bool = False
    ) -> EvaluationBatch[Any, Any]:
        """Run and score each row; the traces are the records."""
        del capture_traces  # a trace costs nothing here
        outputs = [self.program.run(data, candidate) for data in batch]
        scored = [self.program.score(data, output) for data, output in zip(batch, outputs, strict=True)]
        records = [
            {"Inputs": data, "Generated Outputs": output, "Feedback": feedback}
            for data, output, (_, feedback) in zip(batch, outputs, scored, strict=True)
        ]
        return EvaluationBatch(outputs, [float(score) for score, _ in scored], records)

    def make_reflective_dataset(
        self, candidate: Candidate, eval_batch: EvaluationBatch[Any, Any], components_to_update: Sequence[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return the records, for each component."""
        del candidate
        return dict.fromkeys(components_to_update, eval_batch.trajectories or [])

    def propose_new_texts(
        self, candidate: Candidate, reflective_dataset: Mapping[str, Any], components_to_update: list[str]
    ) -> Candidate:
        """Return the program's own new texts but for unchanged ones, which the client does not evaluate either."""
        texts: Candidate = self.program.propose_new_texts(candidate, reflective_dataset, components_to_update)
        return {name: text for name, text in texts.items() if text != candidate[name]}


@dataclass
class _BestCandidates:
    """A callback of GEPA that notes each new best candidate."""

    found: Found = field(default_factory=list)
    _state: Any = None
    _score: float = float("-inf")

    def on_iteration_start(self, event: IterationStartEvent) -> None:
        """Keep the state, which counts the metric calls."""
        self._state = event["state"]

    def on_valset_evaluated(self, event: ValsetEvaluatedEvent) -> None:
        """Note the candidate if it is better than all before it."""
        if event["average_score"] > self._score:
            self._score = event["average_score"]
            calls = self._state.total_num_evals if self._state is not None else event["num_examples_evaluated"]
            self.found.append((calls, dict(event["candidate"])))


class _Quiet:
    """GEPA's log, unread."""

    def log(self, message: str) -> None:
        del message


def best_candidates(program: ModuleType, train: Sequence[Data], val: Sequence[Data], **settings: Any) -> Found:
    """Run GEPA with these of its settings."""
    adapter: Any = FunctionsAdapter(program)
    best: Any = _BestCandidates()
    optimize(
        seed_candidate=dict(program.seed_candidate),
        trainset=list(train),
        valset=list(val),
        adapter=adapter,
        callbacks=[best],
        logger=_Quiet(),
        **settings,
    )
    found: Found = best.found
    return found
