"""Compares a run under faults with an undisturbed run."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from tests.faults.execution_log import noted
from tests.faults.optimizing import Run
from tests.faults.outcome import Outcome, differences, faults

ENOUGH_CANDIDATES = 5


@dataclass(frozen=True)
class Undisturbed:
    """A run that nothing happened to. `lines`: how many the program noted; `calls`: of which not examples, by kind."""

    outcome: Outcome
    lines: int
    calls: dict[str, int]

    @classmethod
    def of(cls, run: Run) -> Self:
        """Read it from a run that has ended, which must be one worth comparing with."""
        outcome, executions = run.outcome(), run.executions()
        assert outcome.status == "completed", outcome.status
        assert len(outcome.candidates) >= ENOUGH_CANDIDATES, "too few candidates to compare runs by"
        assert faults(executions, in_flight=0) == []
        return cls(outcome, noted(run.log), executions.calls)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """What `as_json` wrote."""
        return cls(Outcome(**values["outcome"]), values["lines"], values["calls"])

    def as_json(self) -> str:
        """For other processes of the same tests."""
        return json.dumps(asdict(self))


def check(run: Run, expected: Undisturbed, *, lost_examples: int, lost_calls: int = 0) -> None:
    """The run must be the undisturbed one, paid for once.

    `lost_examples`: how many may have been in flight when something was killed; `lost_calls`: the same of reflective
    datasets and of proposals.
    """
    executions = run.executions()
    found = differences(expected.outcome, run.outcome()) + faults(executions, in_flight=lost_examples)
    for what, times in executions.calls.items():
        if times - expected.calls[what] > lost_calls:
            found.append(f"{what}: made {times} times, {expected.calls[what]} undisturbed, {lost_calls} may be lost")
    assert not found, "\n".join(found)
