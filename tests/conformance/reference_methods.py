"""The reference server's methods, apart from those about calls."""

import asyncio
import json
import uuid
from typing import Any

from protocol import DiscoverResult, JsonValue
from protocol.__main__ import contract
from protocol.errors import ProgramFailed, TrajectoryExpired, UnknownExample
from rpc_server.worker.json_values import packed, unpacked
from tests.conformance.reference_commits import Commits
from tests.conformance.reference_images import with_images
from tests.conformance.reference_params import LIMITS
from tests.conformance.reference_program import ROWS, SEED, Bad, ReferenceProgram, failed

KINDS = {"git_branch": "code", "added_components": "added"}


class Methods:
    """Answers params that have been checked; keeps the trajectories behind refs."""

    def __init__(
        self, bad: Bad, capabilities: frozenset[str], commits: Commits, program_name: str, example_timeout_s: float
    ) -> None:
        self.bad = bad
        self.capabilities = capabilities
        self.commits = commits
        self.program_name = program_name
        self.example_timeout_s = example_timeout_s
        self.program = ReferenceProgram(bad)
        at_once = 1 if bad("one_at_a_time") else 10_000 if bad("unbounded_concurrency") else LIMITS["max_concurrency"]
        self.slots = asyncio.Semaphore(at_once)
        self.instance = uuid.uuid4().hex
        self.scored = 0
        self.traces: dict[str, Any] = {}
        self.groups: dict[str, list[str]] = {}
        self.state = 0

    async def run(self, method: str, params: dict[str, Any], progress: dict[str, Any], *, keep: bool) -> JsonValue:
        if method == "evaluate":
            return {"results": await self.evaluate(params, progress, keep=keep)}
        work = {
            "discover": self.discover,
            "make_reflective_dataset": self.make_reflective_dataset,
            "get_traces": self.get_traces,
            "list_examples": self.list_examples,
            "propose_new_texts": self.propose_new_texts,
            "apply_mutation": self.commits.apply,
            "outline_code": self.commits.outline,
            "import_commits": self.commits.imported,
            "score": self.score,
            "finalize": self.finalize,
            "rpc.discover": self.rpc_discover,
        }[method]
        return work(params)

    def discover(self, _params: dict[str, Any]) -> JsonValue:
        seed = self.commits.seed
        names = ["system"] if self.bad("component_unlisted") else list(seed)
        kinds = {} if self.bad("all_kinds_are_text") else KINDS
        hidden = {"commits"} if self.bad("hides_commits") else set()
        answer = {
            "protocol_versions": ["1"],
            "server": {
                "name": "reference",
                "version": "1",
                "language": "python",
                "instance_id": uuid.uuid4().hex if self.bad("new_instance_each_time") else self.instance,
            },
            "program": {
                "name": self.program_name,
                "version": "1",
                "deterministic": True,
                "digest": uuid.uuid4().hex if self.bad("new_digest_each_time") else "abc",
                "components": [{"name": name, "kind": kinds.get(name, "text")} for name in names],
                "seed_candidate": seed | ({"style": "seed"} if self.bad("other_seed") else {}),
            },
            "datasets": {
                split: {"size": len(rows), "digest": "same" if self.bad("same_digest") else split}
                for split, rows in ROWS.items()
                if "datasets" in self.capabilities
            },
            "capabilities": sorted(self.capabilities - hidden),
            "limits": {**LIMITS, "example_timeout_s": self.example_timeout_s},
        }
        DiscoverResult.model_validate(answer)
        if self.bad("no_limits"):
            del answer["limits"]
        return answer

    def limit_s(self, meta: dict[str, Any]) -> float:
        asked_s = meta.get("example_timeout_s")
        if asked_s is None or "example_timeout" not in self.capabilities or self.bad("ignores_example_timeout"):
            return self.example_timeout_s
        return float(asked_s if self.bad("raises_example_timeout") else min(asked_s, self.example_timeout_s))

    async def evaluate(self, params: dict[str, Any], progress: dict[str, Any], *, keep: bool) -> list[Any]:
        batch = params["batch"]
        candidates = self.candidates(params)
        results: list[Any] = [None] * len(batch)
        finished: list[Any] = []
        slots = asyncio.Semaphore(4) if self.bad("concurrency_per_call") else self.slots
        queued = asyncio.get_running_loop().time()
        limit_s = self.limit_s(params.get("_meta") or {})

        async def one(position: int, example: dict[str, Any]) -> None:
            async with slots:
                began = queued if self.bad("queue_counts") else asyncio.get_running_loop().time()
                try:
                    async with asyncio.timeout_at(began + limit_s):
                        candidate = self.commits.given(candidates[position])
                        result = await self.program.run(candidate, self.data(example))
                        if not self.bad("markers_lost"):
                            result["output"] = packed(result["output"], "output")
                except TimeoutError:
                    kind = "TimeoutError" if self.bad("timeout_untyped") else "timeout"
                    result = {"status": "timeout", "score": None, "output": None, "seconds": limit_s}
                    result["error"] = {"type": kind, "message": "over its deadline"}
                    if self.bad("timeout_scores_zero"):
                        result |= {"status": "ok", "score": 0.0}
            if self.bad("seconds_in_queue"):
                result["seconds"] = asyncio.get_running_loop().time() - queued
            if self.bad("other_scores_each_time") and result["status"] == "ok":
                self.scored += 1
                result["score"] += self.scored / 1000
            results[position] = result
            finished.append(result)
            progress["done"] += 1
            hidden = set() if params.get("capture_traces") else {"trajectory"}
            seen = {name: value for name, value in result.items() if name not in hidden}
            progress["results"][position] = seen | ({"seconds": 0.0} if self.bad("partial_differs") else {})

        tasks = [asyncio.create_task(one(position, example)) for position, example in enumerate(batch)]
        try:
            await asyncio.gather(*tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if not keep:
                raise
            stopped = {"status": "cancelled", "score": None, "output": None, "seconds": 0.0}
            drop = self.bad("cancel_drops_results")
            results = [dict(stopped) if result is None or drop else result for result in results]
        results = finished if self.bad("finishing_order") else results
        return self.shaped(results, params)

    def candidates(self, params: dict[str, Any]) -> list[Any]:
        """The candidate of each example of an `evaluate`."""
        items = params.get("items")
        if items is None or self.bad("items_unread"):
            return [params["candidate"]] * len(params["batch"])
        least = 1 if self.bad("items_take_one") else 0
        return [item["candidate"] for item in items for _ in range(max(int(item["size"]), least))]

    def shaped(self, results: list[Any], params: dict[str, Any]) -> list[Any]:
        """Results as they go out: trajectories inline, by ref, or left out."""
        failures = [result["status"] == "program_error" for result in results]
        if any(failures) and (self.bad("one_failure_fails_all") or (all(failures) and self.bad("all_failed_is_error"))):
            raise ProgramFailed(stage="evaluate")
        if self.bad("by_id"):
            last = {example["id"]: result for example, result in zip(params["batch"], results, strict=True)}
            results = [last[example["id"]] for example in params["batch"]]
        if self.bad("stops_at_100"):
            results = results[:100]
        wanted = params.get("capture_traces", False) or self.bad("always_traces")
        group: str = (params.get("_meta") or {}).get("group", "")
        if any(failures) and self.bad("failure_drops_traces"):
            wanted = False
        by_ref = bool(group) and "refs" in self.capabilities and not self.bad("inline_anyway")
        if group and self.bad("group_hides_traces"):
            wanted = False
        if by_ref and self.bad("group_of_last_call"):
            for ref in self.groups.pop(group, []):
                del self.traces[ref]
        trajectories = [result.get("trajectory") for result in results]
        if self.bad("traces_mixed"):
            trajectories.reverse()
        shaped = []
        for example, result, trajectory in zip(params["batch"], results, trajectories, strict=False):
            out = {name: value for name, value in result.items() if name != "trajectory"}
            if self.bad("no_null_outputs") and out.get("output") is None:
                out.pop("output", None)
            if self.bad("drops_nulls"):
                out["output"] = without_nulls(out.get("output"))
            if by_ref and (wanted or self.bad("refs_without_traces")) and trajectory is not None:
                out["trajectory_ref"] = self.keep(trajectory, group, example["id"])
            elif wanted and trajectory is not None:
                out["trajectory"] = without_nulls(trajectory) if self.bad("cleans_traces") else trajectory
            if len(json.dumps(out)) > LIMITS["max_result_bytes"] and not self.bad("results_unbounded"):
                out = failed("output_too_large", "more than accepted") | {"seconds": out["seconds"]}
            shaped.append(out)
        return shaped

    def keep(self, trajectory: JsonValue, group: str, example_id: str) -> str:
        name = example_id if self.bad("refs_by_example") else uuid.uuid4().hex
        ref = name if self.bad("bare_refs") else f"{self.instance}/{name}"
        self.traces[ref] = trajectory
        self.groups.setdefault(group, []).append(ref)
        return ref

    def make_reflective_dataset(self, params: dict[str, Any]) -> JsonValue:
        given = params["eval_batch"]
        refs = [result.get("trajectory_ref") for result in given["results"]]
        self.check_kept([ref for ref in refs if ref is not None])
        results = [
            {**result, "trajectory": self.traces.get(ref)}
            if ref is not None and not self.bad("refs_unread")
            else result
            for result, ref in zip(given["results"], refs, strict=False)
        ]
        batch = [self.data(example) for example in given["batch"]][: len(results)]
        dataset = self.program.records(batch, results[: len(batch)], params["components_to_update"])
        images: dict[str, Any] = {}
        if "images" in self.capabilities or self.bad("answers_unoffered"):
            dataset, images = with_images(self.bad, dataset)
        self.state += 1
        state = {} if self.bad("stateless") else {"adapter_state": {"calls": self.state}}
        pictures = {"images": images} if images else {}
        return {"dataset": dataset, **pictures, **(state if "adapter_state" in self.capabilities else {})}

    def check_kept(self, refs: list[str]) -> None:
        gone = [ref for ref in refs if ref not in self.traces]
        if gone and not self.bad("any_ref"):
            raise TrajectoryExpired(refs=refs if self.bad("names_all_refs") else gone)

    def get_traces(self, params: dict[str, Any]) -> JsonValue:
        refs = params["refs"]
        self.check_kept(refs)
        found = [{"trajectory": None if self.bad("refs_unread") else self.traces.get(ref)} for ref in refs]
        return {"traces": found}

    def list_examples(self, params: dict[str, Any]) -> JsonValue:
        split = params["split"]
        rows = ROWS.get(split)
        if rows is None and not self.bad("unknown_split_is_empty"):
            raise UnknownExample(split=split, ids=[])
        listed = [{"id": str(at), "split": split, "data": row} for at, row in enumerate(rows or [])]
        if self.bad("lists_backwards"):
            listed.reverse()
        offset = 0 if self.bad("ignores_offset") else int(params.get("offset", 0))
        return {"examples": listed[offset : offset + int(params.get("limit", 100))], "total": len(listed)}

    def propose_new_texts(self, params: dict[str, Any]) -> JsonValue:
        source = SEED if self.bad("proposes_from_seed") else params["candidate"]
        names = SEED if self.bad("proposes_all") else params["components_to_update"]
        return {"texts": {name: source.get(name, "") + "!" for name in names}}

    def score(self, params: dict[str, Any]) -> JsonValue:
        results = []
        for example, result in zip(params["batch"], params["results"], strict=False):
            rated = {"rollout"} if self.bad("keeps_scores") else {"rollout", "ok"}
            waits = result["status"] in rated or self.bad("scores_failures")
            scored = self.program.score(self.data(example), result.get("trajectory")) if waits else {}
            if waits and result.get("trajectory_ref") is not None and not self.bad("scores_without_trajectories"):
                scored = failed("invalid_result", "the trajectory is at another server")
            log = None if self.bad("scoring_drops_logs") else result.get("log")
            if scored.get("error") and log is not None:
                scored["error"]["log"] = log
                log = None
            results.append({**result, **scored, "log": log})
            if self.bad("score_drops_trajectories"):
                results[-1].pop("trajectory", None)
        return {"results": results[::-1] if self.bad("scores_reversed") else results}

    def finalize(self, _params: dict[str, Any]) -> JsonValue:
        return {} if self.bad("silent_finalize") else {"message": "done"}

    def rpc_discover(self, _params: dict[str, Any]) -> JsonValue:
        return contract() | ({"methods": []} if self.bad("empty_openrpc") else {})

    def data(self, example: dict[str, Any]) -> JsonValue:
        if "split" not in example or "data" in example:
            data = example.get("data")
            if self.bad("rounds_integers"):
                data = json.loads(json.dumps(data), parse_int=lambda digits: int(float(digits)))
            return data if self.bad("markers_unread") else unpacked(data)
        rows = ROWS[example["split"]]
        return rows[(int(example["id"]) + self.bad("rows_shifted")) % len(rows)]


def without_nulls(value: JsonValue) -> JsonValue:
    """The value with every key that holds null left out."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value
