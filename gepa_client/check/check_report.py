"""The report of a check: each step's verdict, each example's result, and an estimate of a run."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from gepa_client.journal.requests import digest_of
from gepa_client.settings.groups import Evolve

StepVerdict = Literal["ok", "warning", "failed", "skipped"]
StepName = Literal["handshake", "rows", "evaluate", "scores", "reflective dataset", "proposals", "code"]


class _ReportModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class CheckStep(_ReportModel):
    """One thing that was tried. `details`: what is known of a failure beyond its message."""

    name: StepName
    verdict: StepVerdict
    message: str
    details: str | None = None


class CheckedExample(_ReportModel):
    """The result of one row; `step` names where it failed. `row` is its index in the training rows."""

    row: int
    id: str
    status: str
    score: float | None
    seconds: float
    input: Any = None
    output: Any = None
    step: str | None = None
    error: str | None = None
    details: str | None = None
    cost_usd: float | None = None


class RunEstimate(_ReportModel):
    """Seconds, an example's as measured here, the way there and back included.

    `at_once`: over all servers that answer. `run_s`: what `budget` metric calls would take, from every slot busy to one
    minibatch at a time; None, as `budget` and `run_usd`, where another limit ends the run.
    """

    example_s: float
    slowest_s: float
    all_s: float
    at_once: int
    budget: int | None
    run_s: tuple[float, float] | None
    example_usd: float | None = None
    run_usd: float | None = None


class CheckReport(_ReportModel):
    """Everything `check` found.

    `evolve`: what a run would change. `passed` is False when any step failed; `reached` when the server answered at
    all.
    """

    url: str
    program: str | None = None
    server: str | None = None
    steps: list[CheckStep]
    examples: list[CheckedExample] = []
    timing: RunEstimate | None = None
    evolve: Evolve = "prompts"
    reached: bool = True

    @property
    def passed(self) -> bool:
        """Whether a run may start."""
        return all(step.verdict != "failed" for step in self.steps)


def output_fault(results: Sequence[dict[str, Any]]) -> str | None:
    """Return how the outputs show that the program or its score function is broken; None if they do not.

    `results`: the contract's results, of which every scored one scored 0. Failed examples count as missing outputs. A
    single output is never reported as equal to others.
    """
    outputs = [result.get("output") for result in results if result["status"] == "ok"]
    written = [output for output in outputs if not _is_empty(output)]
    if not written:
        return "every output is empty"
    if len(outputs) > 1 and len({digest_of(output) for output in outputs}) == 1:
        return "every output is the same"
    if len(written) > 1 and len({digest_of(output) for output in written}) == 1:
        return "every output is either empty or the same"
    return None


def spread_over(untried: Sequence[int], count: int) -> list[int]:
    """Return `count` of the indices, evenly spread over all of them; all if there are no more."""
    count = min(count, len(untried))
    return [untried[number * len(untried) // count] for number in range(count)]


def _is_empty(value: JsonValue) -> bool:
    """Return whether a value is null, a blank text, or a list or an object of such values alone."""
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return value is None or (isinstance(value, str) and not value.strip())
