"""The report of a check: each step's verdict, each example's result, and an estimate of a run."""

import difflib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, JsonValue

from evolverpc_common.display_text import counted, one_line
from evolverpc_common.redaction import Secrets, secrets_of
from gepa_client.check.run_forecast import NoiseReport, RunEstimate, run_estimate
from gepa_client.gepa.reflective_records import steps_of
from gepa_client.gepa.rows import AnyRow
from gepa_client.journal.requests import digest_of
from gepa_client.settings.run_settings import Evolve

StepVerdict = Literal["ok", "warning", "failed", "skipped"]
StepName = Literal[
    "handshake",
    "rows",
    "evaluate",
    "score function",
    "scores",
    "reflective dataset",
    "noise",
    "servers",
    "proposals",
    "code",
]

IGNORABLE: frozenset[StepName] = frozenset({"evaluate", "scores", "reflective dataset"})
"""Steps whose findings do not stop a run if `check` is warn."""

Result = dict[str, Any]
"""An `ExampleResult` of the contract as JSON."""

TOLERATED = 0.10
"""The share of examples that may end in a system error: the infrastructure's, a time-out, or the program's."""

LEAST_LIKELY = 0.05
"""How likely a sample with so many failures must be, for more rows to be tried."""

SYSTEM_ERRORS = ("infra_error", "timeout", "program_error", "cancelled")

KINDS = {"infra_error": "infrastructure"}
"""Statuses that messages name otherwise."""

_PLACES = {
    "program_error": "program",
    "timeout": "deadline",
    "infra_error": "infrastructure",
    "cancelled": "cancelled",
    "rollout": "score",
}
"""Where an example with this status failed."""


class _ReportModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class CheckStep(_ReportModel):
    """One thing that was tried. `details`: what is known of a failure beyond its message."""

    name: StepName
    verdict: StepVerdict
    message: str
    details: str | None = None


class CheckedExample(_ReportModel):
    """The result of one row; `step` names where it failed. `row` is its index in the training rows.

    `log`: the end of what the program wrote meanwhile, if the row did not fail; else it is in `details`. `inputs`: of
    that step, as JSON, if it is one of the trajectory's own.
    """

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
    log: str | None = None
    inputs: str | None = None

    @classmethod
    def of(cls, at: int, row: AnyRow, result: Result, components: Sequence[str] = ()) -> Self:
        """Return what is reported of a result; `components`: their names, for an error about a missing one."""
        error = result.get("error") or {}
        message = f"{error.get('type')}: {error.get('message')}" if error else None
        if error.get("type") == "KeyError" and isinstance(row.data, dict):
            message = f"{message} ({_known_keys(str(error.get('message')), row.data, components)})"
        failed = failed_step(result)
        return cls(
            row=at,
            id=row.id,
            status=result["status"],
            score=result["score"],
            seconds=result["seconds"],
            input=row.data,
            output=result.get("output"),
            step=_place(result) if failed is None else _named(failed),
            inputs=None if failed is None else one_line(json.dumps(failed.get("inputs"), ensure_ascii=False), 200),
            error=message,
            details=error.get("traceback"),
            cost_usd=(result.get("usage") or {}).get("cost_usd"),
            log=Secrets(secrets_of()).redact_text(result.get("log") or error.get("log") or "") or None,
        )


def _known_keys(missing: str, data: Mapping[str, Any], components: Sequence[str]) -> str:
    """Return the names that a row and a candidate have, after the nearest to the `missing` key of a KeyError."""
    near = difflib.get_close_matches(missing.strip("'\""), [*components, *data], 1)
    meant = [f"did you mean {near[0]!r}?"] if near else []
    of_candidate = [f"components: {one_line(', '.join(components), 200)}"] if components else []
    return "; ".join([*meant, *of_candidate, f"fields of this row: {one_line(', '.join(data), 200)}"])


def naming(url: str, message: str) -> str:
    """Return the message with the server's URL, if it has none."""
    return message if url in message else f"{url}: {message}"


class ComparedResult(_ReportModel):
    """What a server gave for the seed on the row with this id; the first server's come before those compared with it.

    `differs`: what is not as at the first server, such as `output`; None if all is, or for the first server itself.
    """

    row: str
    server: str
    status: str
    score: float | None
    output: Any = None
    differs: str | None = None


class CheckReport(BaseModel):
    """Everything `check` found, as it is found.

    `compared`: results by which several servers were compared. `evolve`: what a run would change. `noise`: None if no
    scores could be compared. `passed` is False when any step failed; `reached` when the server answered at all. `lost`:
    a connection to the server broke or could not be made, so what failed may be no fault of the program.
    `perfect_score`: what to give the run, as scores are above its own.
    """

    url: str
    program: str | None = None
    server: str | None = None
    language: str | None = None
    steps: list[CheckStep] = []
    examples: list[CheckedExample] = []
    compared: list[ComparedResult] = []
    timing: RunEstimate | None = None
    noise: NoiseReport | None = None
    evolve: Evolve = "prompts"
    reached: bool = True
    lost: bool = False
    perfect_score: float | None = None

    @property
    def passed(self) -> bool:
        """Whether a run may start."""
        return all(step.verdict != "failed" for step in self.steps)


def named_rows(numbers: Sequence[int]) -> str:
    """Return `rows 0-5, 8`, for ascending indices of rows."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ranges = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"row{'' if len(numbers) == 1 else 's'} {ranges}"


def failed_step(result: Result) -> dict[str, Any] | None:
    """Return the step at which a failed example failed, the innermost; None if its steps do not show it."""
    if result["status"] not in SYSTEM_ERRORS:
        return None
    return next((step for step in reversed(steps_of(result)) if step.get("error")), None)


def _named(step: Mapping[str, Any]) -> str:
    component = step.get("component")
    return f"component {component!r}" if component is not None else repr(step.get("name"))


def _place(result: Result) -> str | None:
    kind = (result.get("error") or {}).get("type")
    return "result" if kind == "invalid_result" else _PLACES.get(result["status"])


def failed_steps(examples: Sequence[CheckedExample]) -> str:
    """Return at which steps examples failed, each with its first row and the error of that one."""
    first: dict[str, CheckedExample] = {}
    for example in examples:
        if example.status in SYSTEM_ERRORS and example.step is not None:
            first.setdefault(example.step, example)
    return "the first: " + "; ".join(
        f"row {example.row} failed at {step}{'' if example.inputs is None else f' with inputs {example.inputs}'}: "
        f"{one_line(example.error or example.status, 200)}"
        for step, example in first.items()
    )


def share_failed(examples: Sequence[CheckedExample]) -> float:
    """Return the share of the examples that ended in a system error."""
    return sum(example.status in SYSTEM_ERRORS for example in examples) / len(examples)


def may_be_tolerated(failed: int, tried: int, rows: int) -> bool:
    """Return whether at most the tolerated share of all `rows` may fail, after `failed` of the `tried` ones did.

    That is unlikely if fewer than one in 20 samples of this size would have so many failures (binomial distribution).
    """
    if failed > TOLERATED * rows:
        return False
    fewer = sum(math.comb(tried, k) * TOLERATED**k * (1 - TOLERATED) ** (tried - k) for k in range(failed))
    return 1 - fewer >= LEAST_LIKELY


def examples_verdict(examples: Sequence[CheckedExample], *, evolves: bool) -> tuple[StepVerdict, str]:
    """Judge how many examples ended in a system error. `evolves`: a change of code may fix the program."""
    counts = Counter(example.status for example in examples if example.status in SYSTEM_ERRORS)
    if not counts:
        return "ok", f"{len(examples)} examples, none failed"
    failed = f"{counts.total()} of {len(examples)}"
    kinds = ", ".join(f"{counts[kind]} {KINDS.get(kind, kind)}" for kind in SYSTEM_ERRORS if counts[kind])
    steps = failed_steps(examples)
    if share_failed(examples) <= TOLERATED:
        return "warning", f"{failed} examples failed ({kinds}); {steps}"
    if set(counts) != {"program_error"}:
        return "failed", f"{failed} examples ended in a system error ({kinds}); 10 % are tolerated; {steps}"
    if evolves:
        return "warning", f"the program fails on {failed}; code mutations may fix that; {steps}"
    return "failed", f"the program failed on {failed} examples; 10 % are tolerated; {steps}"


def scores_verdict(
    results: Sequence[Result],
    texts: Mapping[str, str],
    scorers: Sequence[str],
    *,
    evolves: bool,
    perfect: float | None = None,
) -> tuple[StepVerdict, str]:
    """Judge the scores. `texts`: of the seed. `scorers`: the servers that score. `evolves`: as `examples_verdict`.

    `perfect`: the score from which on a row is not reflected on; None if every row is.

    Scores that are all 0 are an error only if the outputs show that something is broken.
    """
    if any(result["status"] == "rollout" for result in results):
        return "ok", f"by {', '.join(scorers)} (not called here)"
    scores = [result["score"] for result in results if result["score"] is not None]
    if not scores:
        return "skipped", "no example has a score"
    if perfect is not None and max(scores) > perfect:
        return _above_perfect(scores, perfect)
    if any(scores):
        return "ok", f"{min(scores):g} to {max(scores):g}, mean {mean(scores):.3g}"
    if are_blank(texts):
        return "ok", f"the seed's texts are empty ({', '.join(texts)}), so every score is 0: nothing to worry about"
    if evolves:
        return "warning", "every score is 0: a code mutation may fix that, if the score function is right"
    failed = sum(result["status"] in SYSTEM_ERRORS for result in results)
    if failed / len(results) > TOLERATED:
        return "skipped", f"not judged: {failed} of {len(results)} examples failed, and the others score 0"
    if (fault := output_fault(results)) is not None:
        return "failed", f"every score is 0 and {fault}: look at the outputs above and at the score function"
    feedback = {result.get("feedback") for result in results}
    same = (
        f", and every feedback is {one_line(feedback.pop() or '', 60)!r}"
        if len(feedback) == 1 and any(feedback)
        else ""
    )
    return "warning", (
        f"every score is 0 on the {len(results)} rows tried{same}: a run learns nothing until a candidate scores above "
        "0 somewhere. Is the score function right?"
    )


def _above_perfect(scores: Sequence[float], perfect: float) -> tuple[StepVerdict, str]:
    """Judge scores of which some are above the perfect one; a run proposes nothing from a minibatch of such rows."""
    above = sum(score > perfect for score in scores)
    advice = f"give the highest score that a row can have, such as `perfect_score` {perfect_for(scores):g}"
    if above == len(scores):
        found = f"every score ({min(scores):g} to {max(scores):g}) is above the perfect score of {perfect:g}"
        return "failed", f"{found}, so a run would propose nothing: {advice}"
    return "warning", f"{above} of {len(scores)} scores are above the perfect score of {perfect:g}: {advice}"


def perfect_for(scores: Sequence[float]) -> float:
    """Return a perfect score for the scale of these scores: the next power of ten."""
    return float(10 ** math.ceil(math.log10(max(scores)))) if max(scores) > 0 else 0.0


def hold_scores_alone(results: Sequence[Result], records: Sequence[Mapping[str, JsonValue]]) -> bool:
    """Return whether the `records` are default ones in which scores stand for feedback, as `score` returned none."""
    has_none = not any(result.get("feedback") or result.get("error") for result in results)
    return has_none and all(str(record.get("Feedback")).startswith("Score: ") for record in records)


def are_zero(results: Sequence[Result]) -> bool:
    """Return whether something was scored, everything with 0, and no result waits for another server's score."""
    scores = [result["score"] for result in results if result["score"] is not None]
    return bool(scores) and not any(scores) and not any(result["status"] == "rollout" for result in results)


def are_blank(texts: Mapping[str, str]) -> bool:
    """Return whether there are texts and all of them are empty."""
    return bool(texts) and not any(text.strip() for text in texts.values())


def mean(values: Sequence[float]) -> float:
    """Return the mean, without the sum, which may be infinite although every value is finite."""
    return sum(value / len(values) for value in values)


def output_fault(results: Sequence[Result]) -> str | None:
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


def _is_empty(value: JsonValue) -> bool:
    """Return whether a value is null, a blank text, or a list or an object of such values alone."""
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return value is None or (isinstance(value, str) and not value.strip())


def brief_lines(report: CheckReport) -> Iterator[tuple[str, bool]]:
    """Yield what a run should know of a check that passed, and whether it is a warning."""
    for step in report.steps:
        if step.verdict == "warning":
            yield step.message, True
    if report.timing is not None:
        yield f"{counted(len(report.examples), 'row')} tried; {run_estimate(report.timing, report.evolve)}", False
    if report.noise is not None:
        yield report.noise.about_power, False
