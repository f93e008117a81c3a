"""The program of the conformance cases: each example specifies what it does."""

# ruff: noqa: ARG001  # the names of the arguments are the contract, used or not
from __future__ import annotations

import time
from typing import Any

DATASETS = {
    "train": [{"score": row / 10} for row in range(5)],
    "val": [{"score": row / 10} for row in range(3)],
}

version = "1"
deterministic = True
seed_candidate = {"system": "seed system", "style": "seed style"}

LIMITS = {"example_timeout_s": 4.0, "abandon_after_s": 2.0, "keep_answers_s": 3.0, "max_result_bytes": 4 * 2**20}
"""Recommended for a server that is to be checked: enough for its examples, and little enough to be reached soon."""

_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf")}


class InfrastructureFailure(Exception):
    """A failure that is not the program's."""

    retryable = True


def run(example: dict[str, Any], candidate: dict[str, str], trace: Any) -> Any:
    """Wait `sleep_ms`, `print`, run `steps`, fail, or return the candidate (`echo_candidate`) or `output`."""
    time.sleep(example.get("sleep_ms", 0) / 1000)
    if "print" in example:
        print(example["print"])
    trace.append({**candidate, "data": example, "pad": "x" * example.get("trace_bytes", 0)})
    _run_steps(example.get("steps", ()), trace)
    if "raise" in example:
        raise ValueError(example["raise"])
    if "infra_error" in example:
        raise InfrastructureFailure(example["infra_error"])
    return candidate if example.get("echo_candidate") else example.get("output")


def score(example: dict[str, Any], output: Any, trajectory: Any) -> dict[str, Any]:
    """Return the `score` requested, 1.0 by default, or the number of steps (`score_steps`), with the feedback."""
    wanted = example.get("score", 1.0)
    if example.get("score_steps"):
        wanted = 0 if trajectory is None else len(trajectory["steps"])
    result = {"score": _number(wanted)}
    for name in ("feedback", "component_feedback"):
        if name in example:
            result[name] = example[name]
    if "objective_scores" in example:
        result["objective_scores"] = {name: _number(given) for name, given in example["objective_scores"].items()}
    return result


def _number(given: Any) -> Any:
    return _NOT_FINITE.get(given, given) if isinstance(given, str) else given


def _run_steps(wanted: Any, trace: Any) -> None:
    """Run steps as an example's `steps` describe them; one with a `parse_failure` ends there; the run continues."""
    for one in wanted:
        begin = trace.step if "component" in one else trace.tool
        failure = one.get("parse_failure")
        try:
            with begin(one.get("component") or one["name"], **one.get("inputs", {})) as step:
                _run_steps(one.get("steps", ()), trace)
                if "raise" in one:
                    raise ValueError(one["raise"])
                if failure is not None:
                    raise trace.parse_failure(failure["raw"], failure["expected"], failure["message"])
                step.outputs = one.get("outputs")
        except Exception:
            if failure is None:
                raise


def make_reflective_dataset(
    candidate: dict[str, str], eval_batch: dict[str, Any], components_to_update: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return for each component a record of each example."""
    records = [_record(*pair) for pair in zip(eval_batch["batch"], eval_batch["results"])]  # noqa: B905  # Python 3.8
    return dict.fromkeys(components_to_update, records)


def _record(example: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    data, error = example["data"], result.get("error")
    feedback = result.get("feedback") or f"Score: {result['score']}"
    if error:
        feedback = f"The program failed: {error['type']}: {error['message']}"
    record = {"Inputs": data, "Generated Outputs": result["output"], "Feedback": feedback}
    return record if result.get("trajectory") is None else {**record, "Trace": result["trajectory"]}


def propose_new_texts(
    candidate: dict[str, str], reflective_dataset: dict[str, Any], components_to_update: list[str]
) -> dict[str, str]:
    """Append a `!` to each component's text."""
    return {name: candidate[name] + "!" for name in components_to_update}


def finalize(best_candidate: dict[str, str], best_score: float, run: dict[str, Any]) -> str:
    """Return a message."""
    return "done"
