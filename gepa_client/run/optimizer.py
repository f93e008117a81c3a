"""Runs `gepa.optimize` against a server, tells of it in events, and keeps everything found whatever happens."""

import functools
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from gepa.api import optimize
from gepa.core.adapter import GEPAAdapter
from gepa.core.callbacks import GEPACallback
from gepa.core.result import GEPAResult

from gepa_client.adapter import RemoteAdapter
from gepa_client.causes import details, summary
from gepa_client.errors import ClientError, Interrupted
from gepa_client.held import held_rows
from gepa_client.litellm_model import LiteLLMModel, is_hopeless
from gepa_client.reflection import ConcurrentReflection, ProgramReflection
from gepa_client.rows import AnyRow, RowLoader
from gepa_client.run import folder as files
from gepa_client.run import splits as rows_of
from gepa_client.run import strategies
from gepa_client.run.config import NOBODY_PROPOSES, RunConfig
from gepa_client.run.events import Emit, Finalized, Finished, Phase, Started, Status, Tested, Warned
from gepa_client.run.guard import FailureGuard, PriceGuard
from gepa_client.run.outage import Outage
from gepa_client.run.pulse import Pulse
from gepa_client.run.settings import SettingsError
from gepa_client.run.watch import Loud, RunWatcher, merge_trap
from gepa_client.text import plain
from protocol.errors import RpcError

STOPPED_AT_TEST = "stopped by hand while the test rows were scored"


@dataclass(frozen=True)
class _Ending:
    """How the search ended, with what it had found by then."""

    status: Status
    result: GEPAResult[Any, int] | None
    reason: str | None = None
    details: str | None = None


class _Log:
    """GEPA's log, to the stream that is the run's log; it repeats texts from elsewhere."""

    def log(self, message: str) -> None:
        print(plain(message), flush=True)


def run(config: RunConfig, output: Path, emit: Emit) -> None:
    """Do one run; `output` is an empty folder of its own. The last event is always `finished`.

    Writes `config.json`, `best_candidate.json` at each improvement and `result.json` at the end.
    """
    files.write_json(output / files.CONFIG, config.recorded())
    finished: Finished | None = None
    outage = Outage(emit)
    try:
        with RemoteAdapter(
            config.url,
            token_file=config.token_file,
            allow_insecure=config.allow_insecure,
            failure_score=config.failure_score,
            max_attempts=config.max_attempts,
            on_example=outage.answered,
            on_lost=outage.lost,
        ) as adapter:
            emit(Phase(phase="connecting"))
            with Pulse(adapter, emit):
                finished = _Run(config, output, emit, adapter).go()
    except Interrupted as interrupted:
        # once the run has ended, stopping it only hastens the closing of its connection
        finished = finished or Finished(status=interrupted.status, reason=interrupted.reason, metric_calls=0)
    except (SettingsError, ClientError, RpcError) as error:
        finished = Finished(status="failed", reason=_reason(error), details=details(error), metric_calls=0)
    emit(finished)


class _Run:
    def __init__(self, config: RunConfig, output: Path, emit: Emit, adapter: RemoteAdapter) -> None:
        self.config = config
        self.output = output
        self.emit = emit
        self.adapter = adapter
        self.id = output.name

    def go(self) -> Finished:
        """Search, test and tell the program; everything but the last event is emitted here."""
        discovery = self.adapter.discovery
        held = {split: info.size for split, info in discovery.datasets.items()}
        fetch = functools.partial(held_rows, self.adapter.client)
        splits = self.adapter.wait_for(rows_of.find(self.config, held, fetch))
        proposer, reflection = self._reflection()
        self.emit(
            Started(
                run_id=self.id,
                url=self.config.url,
                program=discovery.program.name,
                program_version=discovery.program.version,
                server=f"{discovery.server.name} {discovery.server.version} ({discovery.server.language})",
                components=list(discovery.program.seed_candidate),
                splits=splits.sizes,
                max_metric_calls=self.config.max_metric_calls,
                proposer=proposer,
                config=self.config.recorded(),
                hash_seed=os.environ.get("PYTHONHASHSEED"),
            )
        )
        for message in rows_of.warnings(splits) + self._warnings(splits):
            self.emit(Warned(message=message))
        ending = self._search(splits, reflection)
        tested: dict[int, float] = {}
        written = self._write(ending, splits.val, tested)
        result = ending.result
        if ending.status == "finished" and result is not None:
            if splits.test is not None:
                if not self._test(result, splits.test, tested):
                    ending = replace(ending, status="cancelled", reason=STOPPED_AT_TEST)
                written = self._write(ending, splits.val, tested)
            if ending.status == "finished":
                self._finalize(result)
        calls = result.total_metric_calls if result is not None else None
        return Finished(
            status=ending.status,
            reason=ending.reason,
            details=ending.details,
            metric_calls=calls or 0,
            evaluation_usd=self.adapter.tally.cost_usd or None,
            reflection_usd=getattr(reflection, "total_cost", None) or None,
            files=written,
        )

    def _reflection(self) -> tuple[str, Any]:
        """Who proposes, in words and as GEPA's `reflection_strategy`."""
        config = self.config
        if config.reflection_lm is not None:
            template = config.reflection_prompt_template
            if isinstance(template, dict):
                unknown = sorted(set(template) - set(self.adapter.seed_candidate))
                if unknown:
                    raise SettingsError(
                        f"reflection_prompt_template: the program has no component {', '.join(unknown)} "
                        f"(it has {', '.join(self.adapter.seed_candidate)})"
                    )
            model = LiteLLMModel(config.reflection_lm, **(config.reflection_lm_kwargs or {}))
            return config.reflection_lm, ConcurrentReflection(model, template, failures=self.adapter.failures)
        if "proposals" not in self.adapter.discovery.capabilities:
            raise SettingsError(NOBODY_PROPOSES)
        return "the program", ProgramReflection(self.adapter)

    def _warnings(self, splits: rows_of.Splits) -> list[str]:
        budget = self.config.max_metric_calls
        if budget is not None and budget <= len(splits.val):
            return [
                f"max_metric_calls is {budget}, and scoring the seed on {len(splits.val)} validation rows uses it up: "
                "no candidate will be tried"
            ]
        return []

    def _search(self, splits: rows_of.Splits, reflection: Any) -> _Ending:
        """Run GEPA. The one place where an `Interrupted` from inside GEPA is caught."""
        by_model = self.config.reflection_lm is not None
        guard = FailureGuard(
            self.adapter.failures, self.config.max_failed_iterations, self.emit, is_hopeless if by_model else None
        )
        watcher = RunWatcher(
            self.emit,
            lambda best: files.write_json(self.output / files.BEST_CANDIDATE, best),
            seed=self.config.seed,
            use_merge=self.config.use_merge,
        )
        prices = []
        if self.config.max_reflection_cost is not None:
            only_limit = self.config.max_metric_calls is None and not self.config.stop_callbacks
            prices.append(PriceGuard(reflection.lm, self.emit, only_limit=only_limit))
        try:
            result: GEPAResult[Any, int] = optimize(
                seed_candidate=dict(self.adapter.seed_candidate),
                trainset=splits.train,
                valset=splits.val,
                adapter=cast("GEPAAdapter[AnyRow, Any, Any]", self.adapter),
                reflection_strategy=reflection,
                logger=_Log(),
                callbacks=cast("list[GEPACallback]", [*self.adapter.callbacks, *map(Loud, [watcher, guard, *prices])]),
                **strategies.arguments(self.config),
            )
        except Interrupted as interrupted:
            cause = guard.cause if interrupted.status == "failed" else None
            return _Ending(
                interrupted.status, watcher.result(), interrupted.reason, cause.details if cause is not None else None
            )
        except Exception as error:  # noqa: BLE001 - whatever ended GEPA, what it found is kept and the cause told
            return _Ending("failed", watcher.result(), _reason(error), details(error))
        return _Ending("finished", result)

    def _write(self, ending: _Ending, val: RowLoader, tested: dict[int, float]) -> list[str]:
        """Write the result; `val_rows` gives the row behind each id that GEPA's scores are kept by."""
        result = ending.result
        if result is None:
            return []
        files.write_json(self.output / files.BEST_CANDIDATE, result.candidates[result.best_idx])
        files.write_json(
            self.output / files.RESULT,
            {
                **result.to_dict(),
                "run_id": self.id,
                "status": ending.status,
                "best_score": result.val_aggregate_scores[result.best_idx],
                "seed_score": result.val_aggregate_scores[0],
                "val_rows": {str(row_id): row.id for row_id, row in zip(val.all_ids(), val.rows, strict=True)},
                "test_scores": {str(index): score for index, score in tested.items()},
            },
        )
        return [files.BEST_CANDIDATE, files.RESULT]

    def _test(self, result: GEPAResult[Any, int], test: RowLoader, tested: dict[int, float]) -> bool:
        """Score seed and best on rows nothing was selected on; a failure here costs only these two numbers.

        Returns False when somebody stopped it.
        """
        self.emit(Phase(phase="testing"))
        rows = test.fetch(test.all_ids())
        indices = sorted({0, result.best_idx})
        try:
            batches = self.adapter.batch_evaluate([(result.candidates[index], rows) for index in indices], False)
        except (Interrupted, ClientError, RpcError) as error:
            self.emit(Warned(message=f"the test rows could not be scored: {_reason(error)}"))
            return not (isinstance(error, Interrupted) and error.status == "cancelled")
        for index, batch in zip(indices, batches, strict=True):
            tested[index] = sum(batch.scores) / len(batch.scores)
            self.emit(Tested(index=index, score=tested[index], rows=len(rows)))
        return True

    def _finalize(self, result: GEPAResult[Any, int]) -> None:
        """Tell the program, for a bounded time; the result is written by now and stays whatever happens."""
        if "finalize" not in self.adapter.discovery.capabilities:
            return
        self.emit(Phase(phase="finalizing"))
        limit_s = self.config.finalize_timeout_s
        try:
            message = self.adapter.finalize(
                result.candidates[result.best_idx],
                result.val_aggregate_scores[result.best_idx],
                {
                    "id": self.id,
                    "metric_calls": result.total_metric_calls or 0,
                    "candidates": len(result.candidates),
                    "seed_score": result.val_aggregate_scores[0],
                },
                timeout_s=limit_s,
            )
        except TimeoutError:
            self.emit(Finalized(error=f"no answer within {limit_s:g} s"))
        except (Interrupted, ClientError, RpcError) as error:
            self.emit(Finalized(error=_reason(error)))
        else:
            self.emit(Finalized(message=message))


def _reason(error: BaseException) -> str:
    if isinstance(error, SettingsError):
        return str(error)
    if isinstance(error, Interrupted):
        return error.reason
    if isinstance(error, ValueError) and "Total of weights must be greater than zero" in str(error):
        return merge_trap("a common ancestor of two candidates scores 0 or less")
    return summary(error)
