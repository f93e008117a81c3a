"""The conformance program inside the reference server, and the places of its defects."""

import asyncio
import json
import math
import time
from collections.abc import Callable
from typing import Any

from tests.conformance.reference_steps import run_steps

Bad = Callable[[str], bool]
SEED = {"system": "seed system", "style": "seed style"}
ROWS = {"train": [{"score": row / 10} for row in range(5)], "val": [{"score": row / 10} for row in range(3)]}
MAX_LOG = 65_536
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf}


class ReferenceProgram:
    """Runs and scores examples. Nothing is kept between them, except by the defects that are about that."""

    def __init__(self, bad: Bad) -> None:
        self.bad = bad
        self.shared: dict[str, Any] = {}

    async def run(self, candidate: dict[str, str], data: Any) -> dict[str, Any]:
        """The result of one example, traced."""
        started = time.monotonic()
        if self.bad("first_candidate_stays"):
            candidate = self.shared.setdefault("candidate", candidate)
        self.shared["latest"] = candidate, data
        result: dict[str, Any] = {"status": "ok", "score": None, "output": None}
        trajectory: Any = None
        printed = self.shared.get("printed", "") if self.bad("logs_grow") else ""
        try:
            before = len(self.shared.setdefault("all printed", []))
            await asyncio.sleep(data.get("sleep_ms", 0) / 1000)
            self.shared["all printed"].append(data.get("print", ""))
            printed += "".join(self.shared["all printed"][before:]) if self.bad("logs_mixed") else data.get("print", "")
            if self.bad("shared_candidate"):
                candidate = self.shared["latest"][0]
            if self.bad("shared_example"):
                data = self.shared["latest"][1]
            if self.bad("strips_texts"):
                candidate = {name: text.strip().replace("\r\n", "\n") for name, text in candidate.items()}
            trajectory = {**candidate, "data": data, "pad": "x" * data.get("trace_bytes", 0)}
            if self.bad("cuts_traces"):
                trajectory["pad"] = trajectory["pad"][:1000]
            steps: list[dict[str, Any]] = self.shared.setdefault("steps", []) if self.bad("shared_steps") else []
            if "steps" in data and not self.bad("records_no_steps"):
                trajectory = {"steps": steps, "trace": trajectory}
            await run_steps(self.bad, data.get("steps", []), steps)
            if "raise" in data:
                raise ValueError(data["raise"])
            if "infra_error" in data:
                raise ConnectionError(data["infra_error"])
            result["output"] = candidate if data.get("echo_candidate") else data.get("output")
            result |= self.score(data, trajectory)
        except Exception as error:  # noqa: BLE001 - any exception of a program is its example's result
            result |= failed(type(error).__name__, "failed" if self.bad("hides_reasons") else str(error))
            if isinstance(error, ConnectionError) and not self.bad("outages_are_failures"):
                result["status"] = "infra_error"
            if self.bad("failures_have_no_steps"):
                trajectory = None
        if printed.startswith('{"jsonrpc"') and self.bad("printed_answers"):
            return dict(json.loads(printed)["result"]["results"][0]) | {"trajectory": None}
        self.shared["printed"] = printed
        if self.bad("logs_of_nothing"):
            printed = printed or "(nothing)"
        if self.bad("logs_tidied"):
            printed = " ".join(printed.split())
        if not self.bad("logs_unbounded"):
            printed = printed[-MAX_LOG:]
        if printed:
            holder = result.get("error", result)
            if holder is not result or not self.bad("logs_failures_only"):
                holder["log"] = printed
        result["seconds"] = 0.0 if self.bad("no_seconds") else time.monotonic() - started
        return result | {"trajectory": trajectory}

    def score(self, data: Any, trajectory: Any) -> dict[str, Any]:
        """Status, score and what goes with it, for one output."""
        wanted = data.get("score", 1.0)
        if data.get("score_steps") and not self.bad("trajectories_unread"):
            wanted = len(trajectory["steps"]) if trajectory is not None or self.bad("needs_trajectories") else 0
        score = NOT_FINITE.get(wanted, wanted) if isinstance(wanted, str) else wanted
        if self.bad("converts_scores") and isinstance(score, str):
            score = float(score)
        if self.bad("infinite_is_large") and score == math.inf:
            score = 1e308
        if isinstance(score, bool) and not self.bad("refuses_booleans"):
            score = int(score)
        good = isinstance(score, float | int) and not isinstance(score, bool) and math.isfinite(score)
        if not good and not (self.bad("passes_nan") and isinstance(score, float)):
            kind = "ValueError" if self.bad("untyped_score_errors") else "invalid_result"
            return failed(kind, "the score is not a finite number")
        objectives = {name: NOT_FINITE.get(value, value) for name, value in data.get("objective_scores", {}).items()}
        if not all(map(math.isfinite, objectives.values())) and not self.bad("any_objectives"):
            return failed("invalid_result", "an objective score is not a finite number")
        data = {**data, "objective_scores": objectives} if objectives else data
        names = {"feedback", "objective_scores", "component_feedback"}
        names -= {"feedback", "objective_scores"} if self.bad("drops_feedback") else set()
        names -= {"component_feedback"} if self.bad("drops_component_feedback") else set()
        return {"status": "ok", "score": score, **{name: data[name] for name in names & data.keys()}}

    def records(self, batch: list[Any], results: list[dict[str, Any]], names: list[str]) -> dict[str, list[Any]]:
        """The reflective dataset."""
        made = []
        for data, result in zip(batch, results, strict=True):
            record = {"Inputs": data, "Generated Outputs": result.get("output") or "", "Feedback": _feedback(result)}
            trace = {"Trace": result["trajectory"]} if result.get("trajectory") else {}
            made.append({"Record": json.dumps(record)} if self.bad("bare_records") else record | trace)
        if self.bad("records_reversed"):
            made.reverse()
        if self.bad("one_record"):
            made = made[:1]
        return dict.fromkeys(SEED if self.bad("all_components") else names, made)


def _feedback(result: dict[str, Any]) -> str:
    if result.get("feedback"):
        return str(result["feedback"])
    if result["status"] == "ok":
        return f"Score: {result['score']}"
    error = result.get("error") or {"type": "Error", "message": ""}
    return f"The program failed: {error['type']}: {error['message']}"


def failed(kind: str, message: str) -> dict[str, Any]:
    """What a failure puts in place of a score."""
    return {"status": "program_error", "score": None, "output": None, "error": {"type": kind, "message": message}}
