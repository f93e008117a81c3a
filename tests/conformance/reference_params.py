"""What the reference server refuses before anything runs: fields, candidates, examples, versions, sizes."""

import re
from typing import Any

from pydantic import ValidationError

from protocol import METHODS
from protocol.code import GIT_BRANCH
from protocol.errors import InvalidParams, LimitExceeded, UnknownCandidate, UnknownExample, VersionNotSupported
from rpc_server.worker.json_values import MalformedMarkerError, unpacked
from tests.conformance.reference_commits import Commits
from tests.conformance.reference_program import ROWS, Bad

LIMITS = {
    "max_concurrency": 4,
    "max_batch_size": 200,
    "max_request_bytes": 4_000_000,
    "max_batch_entries": 10,
    "max_result_bytes": 3_000_000,
    "abandon_after_s": 1.5,
    "keep_answers_s": 1.5,
}

# The misfits of params that a defect overlooks: what their path and kind look like, as `path kind`.
OVERLOOKED = {
    "any_meta": r"^_meta ",
    "version_of_any_kind": r"^_meta\.protocol_version ",
    "any_call_id": r"^_meta\.call_id ",
    "negative_wait": r"wait_s ",
    "any_partial": r"^partial ",
    "discover_takes_anything": r"^verbose ",
    "ignores_unknown_fields": r"^\w+ extra_forbidden",
    "ignores_nested_fields": r"[.\]]\w* extra_forbidden",
    "converts": r"^capture_traces ",
    "any_text": r"^candidate\.",
    "sourceless_examples": r"^batch\[\d+\] value_error",
    "any_example_id": r"^batch\[\d+\]\.id ",
    "any_result": r"^eval_batch\.results",
    "any_ref_kind": r"^refs\[",
    "any_size": r"^items\[\d+\]\.size ",
    "any_image": r"^images\.",
    "any_page": r"^(offset|limit) ",
    "any_dataset": r"^reflective_dataset",
    "any_run": r"^(run|best_score)",
    "any_bundles": r"^bundles",
    "any_mutation": r"^mutation",
    "any_name": r"^name",
}


class ParamChecks:
    """Checks the params of every method."""

    def __init__(self, bad: Bad, capabilities: frozenset[str], commits: Commits) -> None:
        self.bad = bad
        self.capabilities = capabilities
        self.commits = commits

    def check(self, method: str, params: dict[str, Any]) -> None:
        """Refuse what the contract refuses before anything runs."""
        self.check_version(params)
        self.check_fields(method, params)
        meta: dict[str, Any] = params["_meta"] if isinstance(params.get("_meta"), dict) else {}
        if meta.get("wait_s") is not None and "call_id" not in meta and not self.bad("wait_without_call_id"):
            raise invalid("_meta.wait_s", "needs a call_id")
        if meta.keys() - {"protocol_version", "call_id", "wait_s", "group"} and self.bad("closed_meta"):
            raise invalid("_meta", "unknown key")
        for name in ("candidate", "best_candidate"):
            if isinstance(params.get(name), dict):
                params[name] = self.check_candidate(params[name], params.get("components_to_update", []))
        self.check_items(params)
        unoffered = "partial" not in self.capabilities and not self.bad("answers_unoffered")
        if method == "get_result" and "partial" in params and unoffered:
            raise invalid("partial", "needs capability partial")
        if params.get("images") and self.bad("refuses_images"):
            raise invalid("images", "unknown field")
        self.check_examples(method, params)

    def check_version(self, params: dict[str, Any]) -> None:
        version = params["_meta"].get("protocol_version") if isinstance(params.get("_meta"), dict) else None
        strange = isinstance(version, str) and (version != "1" or self.bad("refuses_version_1"))
        if strange and not self.bad("ignores_version"):
            raise VersionNotSupported(supported=["1"], requested=version)

    def check_fields(self, method: str, params: dict[str, Any]) -> None:
        if self.bad("insists_on_integers") and any(isinstance(value, float) for value in params.values()):
            raise invalid("offset", "not an integer")
        try:
            METHODS[method].params.model_validate(params)
        except ValidationError as error:
            misfits = [(dotted(misfit["loc"]), misfit["type"], misfit["msg"]) for misfit in error.errors()]
            overlooked = [pattern for defect, pattern in OVERLOOKED.items() if self.bad(defect)]
            left = [m for m in misfits if not any(re.search(pattern, f"{m[0]} {m[1]}") for pattern in overlooked)]
            if left:
                named = not (self.bad("missing_unnamed") and left[0][1] == "missing")
                errors = [{"path": path, "message": message} for path, _, message in left]
                raise InvalidParams(errors=errors if named else []) from error
        results = (params.get("eval_batch") or {}).get("results", []) if method == "make_reflective_dataset" else []
        if self.bad("closed_results") and any("from_a_later_version" in result for result in results):
            raise invalid("eval_batch.results[0].from_a_later_version", "unknown field")
        if self.bad("nulls_refused") and any(result.get("feedback", "") is None for result in results):
            raise invalid("eval_batch.results[0].feedback", "not a string")

    def check_candidate(self, candidate: dict[str, str], asked: list[str]) -> dict[str, str]:
        seed = self.commits.seed
        if self.bad("fills_candidates_up"):
            candidate = seed | candidate
        if self.bad("drops_extra_components"):
            candidate = {name: text for name, text in candidate.items() if name in seed}
        if self.bad("git_branch_optional"):
            candidate = {GIT_BRANCH: seed[GIT_BRANCH]} | candidate
        unknown, missing = sorted(candidate.keys() - seed), sorted(seed.keys() - candidate)
        if (unknown or missing) and not self.bad("any_candidate"):
            raise UnknownCandidate(unknown=unknown, missing=missing)
        known = candidate.keys() | self.commits.check(candidate).keys()
        if self.bad("code_is_no_component"):
            known -= {GIT_BRANCH}
        strange = [name for name in asked if name not in known]
        if strange and not self.bad("any_component"):
            raise UnknownCandidate(unknown=strange)
        return candidate

    def check_items(self, params: dict[str, Any]) -> None:
        items = params.get("items")
        if items is None:
            return
        if "batch_evaluate" not in self.capabilities and not self.bad("answers_unoffered"):
            raise invalid("items", "needs capability batch_evaluate")
        if sum(item["size"] for item in items) != len(params["batch"]) and not self.bad("any_size"):
            raise invalid("items", "the sizes do not add up to the length of the batch")
        for item in items if not self.bad("items_unchecked") else []:
            item["candidate"] = self.check_candidate(item["candidate"], [])

    def check_examples(self, method: str, params: dict[str, Any]) -> None:
        holder = params.get("eval_batch", params)
        batch = holder.get("batch") if isinstance(holder, dict) else None
        if not isinstance(batch, list):
            return
        if "results" in holder and len(batch) != len(holder["results"]) and not self.bad("uneven_batches"):
            raise invalid("results", "batch and results differ in length")
        limit = LIMITS["max_batch_size"] - (1 if self.bad("off_by_one") else 0)
        if len(batch) > limit and not self.bad("unbounded_batch_size"):
            raise LimitExceeded(limit="max_batch_size", allowed=LIMITS["max_batch_size"], given=len(batch))
        if not batch and method == "evaluate" and self.bad("refuses_empty"):
            raise invalid("batch", "is empty")
        if self.bad("short_ids") and any(len(example["id"]) > 255 for example in batch):
            raise invalid("batch[0].id", "too long")
        for position, example in enumerate(batch if not self.bad("any_marker") else ()):
            try:
                unpacked(example.get("data") if isinstance(example, dict) else None)
            except MalformedMarkerError as error:
                raise invalid(f"batch[{position}].data", str(error)) from None
        held = [example for example in batch if isinstance(example, dict) and "split" in example]
        if held and len(held) < len(batch) and self.bad("one_source_per_batch"):
            raise invalid("batch", "one source for all")
        if held and method == "make_reflective_dataset" and self.bad("held_rows_unreflected"):
            raise invalid("eval_batch.batch[0].data", "missing")
        for split in {example["split"] for example in held}:
            ids = [example["id"] for example in held if example["split"] == split]
            rows = self.rows(split) or []
            unknown = [i for i in ids if i not in map(str, range(len(rows)))]
            if unknown and self.bad("unknown_split_is_invalid") and not rows:
                raise invalid("batch[0].split", "unknown")
            if unknown:
                raise UnknownExample(split=split, ids=unknown[:1] if self.bad("first_unknown_only") else unknown)
        if self.bad("null_is_no_data") and any(example.get("data", 0) is None for example in batch):
            raise invalid("batch[0].data", "missing")

    def rows(self, split: str) -> list[dict[str, Any]] | None:
        return ROWS.get(split) if "datasets" in self.capabilities else None


def invalid(path: str, message: str) -> InvalidParams:
    """An `InvalidParams` that names one path."""
    return InvalidParams(errors=[{"path": path, "message": message}])


def dotted(location: tuple[int | str, ...]) -> str:
    """A location of pydantic's as the contract writes paths."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
