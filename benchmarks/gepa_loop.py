"""One GEPA run three ways: ours, `gepa.optimize` in one process, and gepa-rpc 0.2.2's adapter from PyPI.

All three evaluate the same rows, 100 ms each, 64 at once, until 600 metric calls are spent, and must find the same
candidates. Rounds are interleaved, so that a slow moment of the machine falls on all alike; a figure is the median
over rounds of the ratio of wall times within a round. The last line is JSON; the exit status is 1 where a limit is
missed.

Each is given the same slots (64) and the same reflection model, a function that sleeps and that gets an iteration's
prompts together, as `gepa.lm.LM` would. gepa-rpc's adapter has no `batch_evaluate`, so GEPA evaluates the tasks of a
PxN iteration one after another; its own command cannot ask for PxN at all.
"""

import argparse
import contextlib
import gc
import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".venv" / "peers"
sys.path.insert(0, str(ROOT))
sys.path.append(str(PEERS))

from gepa.api import optimize  # noqa: E402
from gepa.core.adapter import EvaluationBatch  # noqa: E402
from gepa.core.result import GEPAResult  # noqa: E402
from gepa.strategies.proposal_sampling import PxNSampling, SingleMutationSampling  # noqa: E402

from benchmarks import hashed_task, ours, stub_endpoints  # noqa: E402
from gepa_client import ConcurrentDatasets, ConcurrentReflection, Row, RowLoader  # noqa: E402

try:
    PeerAdapter = importlib.import_module("gepa_rpc.adapter").RPCAdapter
except ModuleNotFoundError:
    raise SystemExit("gepa_loop: no gepa-rpc; make .venv/peers/.installed installs it") from None

SLOTS = 64
EXAMPLE_S = 0.1
REFLECTION_S = 0.085
TRAIN, VAL = 200, 8
METRIC_CALLS = 600
LIMITS = {"pxn_vs_inprocess": 1.10, "pxn_vs_gepa_rpc": 0.20, "single_vs_inprocess": 1.05}

Way = Callable[[Any], GEPAResult[Any, Any]]
"""Runs GEPA with a sampling strategy."""


class PooledAdapter:
    """The program in GEPA's own process; all items of a `batch_evaluate` share one pool of threads."""

    propose_new_texts = None

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def evaluate(
        self, batch: Sequence[hashed_task.Data], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Any, str]:
        """One item."""
        del capture_traces  # a trace costs nothing here
        return self.batch_evaluate([(candidate, batch)])[0]

    def batch_evaluate(
        self, items: Sequence[tuple[dict[str, str], Sequence[hashed_task.Data]]]
    ) -> list[EvaluationBatch[Any, str]]:
        """All rows of all items at once, as far as there are threads."""
        running = [
            [(data, self._pool.submit(_run_here, candidate, data)) for data in batch] for candidate, batch in items
        ]
        batches = []
        for item in running:
            done = [(data, *future.result()) for data, future in item]
            batches.append(
                EvaluationBatch([answer for _, answer, _ in done], [scored for _, _, scored in done], trajectories=done)
            )
        return batches

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: EvaluationBatch[Any, str], components_to_update: Sequence[str]
    ) -> dict[str, list[hashed_task.Record]]:
        """From the traces, which are (row, output, score)."""
        del candidate
        records = [hashed_task.record(*trace) for trace in eval_batch.trajectories or ()]
        return dict.fromkeys(components_to_update, records)


def _run_here(candidate: dict[str, str], data: hashed_task.Data) -> tuple[str, float]:
    time.sleep(data["seconds"])
    return hashed_task.output(candidate, data), hashed_task.score(candidate, data)


class _Quiet:
    """GEPA's log, unread."""

    def log(self, message: str) -> None:
        del message


TRAIN_ROWS = hashed_task.rows(TRAIN, EXAMPLE_S)
VAL_ROWS = hashed_task.rows(VAL, EXAMPLE_S, first=TRAIN)


def _optimize(adapter: Any, sampling: Any, train: Any, val: Any, **others: Any) -> GEPAResult[Any, Any]:
    return optimize(
        seed_candidate=dict(hashed_task.SEED_CANDIDATE),
        trainset=train,
        valset=val,
        adapter=adapter,
        sampling_strategy=sampling,
        max_metric_calls=METRIC_CALLS,
        logger=_Quiet(),
        **others,
    )


def run_ours(url: str, folder: Path, sampling: Any) -> GEPAResult[Any, Any]:
    """Return the remote adapter with a fleet of one endpoint, everything recorded in a new store."""
    loaders = [
        RowLoader([Row(str(data["number"]), data) for data in rows], first_id=rows[0]["number"])
        for rows in (TRAIN_ROWS, VAL_ROWS)
    ]
    with tempfile.TemporaryDirectory(dir=folder) as own, ours.adapter([url], Path(own) / "runs.db") as adapter:
        reflection = ConcurrentReflection(
            hashed_task.HashedModel(REFLECTION_S), max_workers=hashed_task.MODEL_WORKERS, journal=adapter.journal
        )
        datasets = ConcurrentDatasets(adapter)
        return _optimize(
            adapter,
            sampling,
            *loaders,
            reflection_strategy=reflection,
            module_selector=datasets,
            callbacks=[*adapter.callbacks, datasets],
        )


def run_in_process(sampling: Any) -> GEPAResult[Any, Any]:
    """No server, no wire, no journal."""
    with ThreadPoolExecutor(SLOTS) as pool:
        model = hashed_task.HashedModel(REFLECTION_S)
        return _optimize(PooledAdapter(pool), sampling, TRAIN_ROWS, VAL_ROWS, reflection_lm=model)


def run_gepa_rpc(url: str, sampling: Any) -> GEPAResult[Any, Any]:
    """Return the peer's adapter as PyPI has it, given to GEPA as its own example does."""
    return _optimize(
        PeerAdapter(url), sampling, TRAIN_ROWS, VAL_ROWS, reflection_lm=hashed_task.HashedModel(REFLECTION_S)
    )


def found(result: GEPAResult[Any, Any]) -> Any:
    """Return what must be the same in all ways."""
    return result.candidates, result.parents, result.val_aggregate_scores, result.total_metric_calls


def measure(ways: dict[str, Way], sampling: Any, rounds: int) -> tuple[dict[str, list[float]], int]:
    """Wall seconds by way and round, and how many candidates all of them found.

    Raises:
        SystemExit: two ways found different candidates.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    expected: Any = None
    for number in range(rounds):
        order = list(ways.items())
        for name, way in order if number % 2 else reversed(order):
            started = time.perf_counter()
            result = way(sampling)
            seconds[name].append(time.perf_counter() - started)
            expected = expected or found(result)
            if found(result) != expected:
                raise SystemExit(f"gepa_loop: {name} found other candidates")
        print({name: f"{taken[-1]:.2f} s" for name, taken in seconds.items()}, flush=True)
    return seconds, len(expected[0])


def ratio(seconds: dict[str, list[float]], over: str, under: str) -> float:
    """Return the median of the ratios within a round."""
    return round(statistics.median(a / b for a, b in zip(seconds[over], seconds[under], strict=True)), 3)


@contextlib.contextmanager
def _ways() -> Iterator[dict[str, Way]]:
    with stub_endpoints.running(1, SLOTS) as stubs, tempfile.TemporaryDirectory() as folder:
        yield {
            "ours": lambda sampling: run_ours(stubs.urls[0], Path(folder), sampling),
            "in_process": run_in_process,
            "gepa_rpc": lambda sampling: run_gepa_rpc(stubs.gepa_rpc, sampling),
        }


def main() -> int:
    """Measure, end with the line of JSON; 0 when every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    gc.collect()
    gc.freeze()  # these two as the optimizer's own process does; for all ways alike
    gc.set_threshold(50_000, 20, 50)
    with _ways() as ways:
        pxn, pxn_candidates = measure(ways, PxNSampling(2, 4), arguments.rounds)
        del ways["gepa_rpc"]
        single, single_candidates = measure(ways, SingleMutationSampling(), arguments.rounds)
    figures = {
        "pxn_vs_inprocess": ratio(pxn, "ours", "in_process"),
        "pxn_vs_gepa_rpc": ratio(pxn, "ours", "gepa_rpc"),
        "single_vs_inprocess": ratio(single, "ours", "in_process"),
    }
    print(
        json.dumps(
            {
                **figures,
                "limits": LIMITS,
                "pxn_seconds": {name: round(statistics.median(taken), 2) for name, taken in pxn.items()},
                "single_seconds": {name: round(statistics.median(taken), 2) for name, taken in single.items()},
                "candidates": {"pxn": pxn_candidates, "single": single_candidates},
                "identical": True,
                "task": {
                    "metric_calls": METRIC_CALLS,
                    "example_ms": round(EXAMPLE_S * 1000),
                    "reflection_ms": round(REFLECTION_S * 1000),
                    "slots": SLOTS,
                    "val_rows": VAL,
                },
                "rounds": arguments.rounds,
            }
        )
    )
    return int(any(figures[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
