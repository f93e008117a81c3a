"""Run `gepa.optimize` against a fleet, emit its events, and keep its results however it ends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from gepa.api import optimize
from gepa.core.result import GEPAResult

from evolverpc_common.display_text import plain
from evolverpc_common.model_prices import PriceTable
from evolverpc_common.settings.sources import SettingsError
from gepa_client.analysis.power import Noise
from gepa_client.certificate.sealed_test import decide, part_of_test, recorded_plan
from gepa_client.errors import ClientError, Interrupted
from gepa_client.evolution.code_merge import code_counts_as_mergeable
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.answer_check import AnswerCheck
from gepa_client.gepa.known_results import KnownResults
from gepa_client.gepa.litellm_model import LiteLLMModel, is_hopeless
from gepa_client.gepa.reflection_prompt import RecordBudget
from gepa_client.gepa.reflection_strategies import ConcurrentDatasets, ConcurrentReflection, ProgramReflection
from gepa_client.gepa.rows import RowLoader
from gepa_client.journal.entries import (
    COMPARE,
    COMPLETION,
    EVALUATE,
    MODEL_CALL,
    MUTATION,
    PROBE,
    RETRACE,
    SCORE,
)
from gepa_client.journal.history import selection_name
from gepa_client.journal.requests import journal_reference
from gepa_client.journal.run_events import Emit, Finalized, Finished, Phase, ReflectionRetried, Tested, Warned
from gepa_client.run import output_folder as files
from gepa_client.run import strategies
from gepa_client.run.failures import FailFastCallback, FailureGuard, RunWarnings, error_details, stop_for, stop_reason
from gepa_client.run.initial_state import InitialState
from gepa_client.run.resolved_settings import is_deterministic
from gepa_client.run.run_counters import RunCounters
from gepa_client.run.search_events import ProposalWatcher, RunWatcher
from gepa_client.run.stops import BudgetStop, NothingNewStop, SteeredStops, Stop, perfect_stop, stoppers
from gepa_client.run.tie_break import best_and_seed_scores, best_of_rest, compare_ties, recorded_best, reserved_calls
from gepa_client.settings.run_config import NO_PROPOSER, RunConfig
from gepa_client.settings.run_settings import SUGGESTED_METRIC_CALLS
from gepa_client.steering.steering import ActiveRequests, Steering
from gepa_client.steering.user_requests import WaitingRequests
from protocol.code import GIT_BRANCH
from protocol.errors import RpcError

TEST_SKIPPED = (
    "the limit that ended the run holds for the test rows too: they were not scored, and the program did not receive "
    "the best candidate; resume with a higher limit for both"
)
"""The warning if a limit on money or time ended the run: such limits cover all of its work."""


FINALIZE_LIMIT_S = 60.0
"""Seconds that the program's `finalize` may take."""

SPEND_CAP = (
    "the gateway of the sandboxes holds the spend cap, and cannot change it while it runs: pause the run, and resume "
    "it with another `max_cost_usd`"
)
"""Why a user cannot set `max_cost_usd` of a run whose calls of models a gateway counts."""


@dataclass(frozen=True)
class _SearchEnd:
    """How the run ends as far as that is known, with its result so far."""

    finished: Finished
    result: GEPAResult[Any, int] | None


def _interrupted(ending: _SearchEnd, by: Interrupted, during: str, *, search_complete: bool = True) -> _SearchEnd:
    """Return how a run ends that was interrupted after its search. `during`: what was done then."""
    found = {"reason": f"{by.reason} (while {during})", "search_complete": search_complete}
    found |= {"status": by.status, "infrastructure": by.infrastructure}
    return replace(ending, finished=ending.finished.model_copy(update=found))


class _GepaLog:
    """Writes GEPA's log to the run's log; it repeats texts of servers and models."""

    def log(self, message: str) -> None:
        try:
            print(plain(message), flush=True)
        except OSError as error:  # GEPA would swallow it
            raise stop_for(error, "writing the log") from error


@dataclass
class Optimization:
    """One run from its start to its end; recorded work is replayed from the journal of `adapter`.

    `owned`: raises `Interrupted` if another process drives the run by now, whose results must not be overwritten.
    `output`: the folder for results, None writes none.
    `settled`: waits for costs that are reported just after the work has ended. `noise`: that of the recorded search.
    `requests`: of users to the run. `on_limits`: records and applies the limits that a user sets, by their settings.
    """

    config: RunConfig
    output: Path | None
    emit: Emit
    adapter: RemoteAdapter
    initial: InitialState
    counters: RunCounters
    owned: Callable[[], None] = lambda: None
    settled: Callable[[], None] = lambda: None
    noise: Callable[[], Noise | None] = lambda: None
    requests: WaitingRequests | None = None
    on_limits: Callable[[Mapping[str, float]], None] = lambda _limits: None
    active_requests: ActiveRequests = field(default_factory=ActiveRequests, init=False)
    """What users asked of the search."""

    def run(self, reflection: Any) -> Finished:
        """Search, score the test rows and finalize; emit every event but the last, which is returned.

        Writes `best_candidate.json` at each improvement and `result.json` at the end.
        """
        splits = self.initial.splits
        ending = self._search(reflection)
        tested: dict[int, float] = {}
        if ending.finished.search_complete:
            ending = self._compare_ties(ending)
        elif ending.result is not None:
            ending = replace(ending, result=recorded_best(self.adapter, self.config, ending.result, self.emit))
        in_replay = self._in_replay(ending)
        written = self._write(ending, tested)
        if ending.finished.search_complete and ending.result is not None:
            if splits.test is not None:
                ending = self._test(ending, ending.result, splits.test, tested)
                written = self._write(ending, tested)
            if ending.finished.status == "completed" and ending.result is not None and not self.adapter.journal.replays:
                self._finalize(ending.result)
        elif ending.finished.status == "completed" and ending.result is not None and splits.test is not None:
            self.emit(Warned(message=TEST_SKIPPED))
        self.settled()
        spend = self.adapter.journal.spending
        costs = {
            "evaluation_usd": sum(spend[kind].cost_usd for kind in (EVALUATE, RETRACE, PROBE, COMPARE, SCORE)) or None,
            "reflection_usd": spend[COMPLETION].cost_usd or None,
            "mutation_usd": spend[MUTATION].cost_usd or None,
            "model_usd": spend[MODEL_CALL].cost_usd or None,
            "unpriced": spend.unpriced,
            "unreported": spend.unreported,
        }
        calls = ending.result.total_metric_calls or 0 if ending.result is not None else 0
        outcome = {"metric_calls": calls, "files": written, "in_replay": in_replay}
        return ending.finished.model_copy(update=costs | outcome)

    def _in_replay(self, ending: _SearchEnd) -> bool:
        """Return whether the run ended before the end of its record, whose results are newer."""
        journal = self.adapter.journal
        return ending.finished.status != "completed" and journal.replaying and not journal.replays

    def reflection(self) -> Any:
        """Return GEPA's `reflection_strategy`.

        Raises:
            SettingsError: there is no proposer, or a prompt is for an unknown component.
        """
        config, adapter = self.config, self.adapter
        check = AnswerCheck(config.max_component_tokens)
        if config.reflection_lm is None:
            if not adapter.offers("proposals"):
                raise SettingsError(NO_PROPOSER)
            return ProgramReflection(adapter, check)
        adapter.propose_new_texts = None  # the model proposes, even if the program could
        template = config.reflection_prompt_template
        if isinstance(template, dict):
            unknown = sorted(set(template) - set(adapter.seed_candidate))
            template = {name: text for name, text in template.items() if name != GIT_BRANCH} or None
            if unknown:
                raise SettingsError(
                    f"reflection_prompt_template: the program has no component {', '.join(unknown)} "
                    f"(it has {', '.join(adapter.seed_candidate)})"
                )
        model = LiteLLMModel(
            config.reflection_lm,
            per_minute=config.reflection_per_minute,
            cancel_token=adapter.journal.cancel_token,
            on_retry=lambda error: self.emit(ReflectionRetried(error=error)),
            prices=PriceTable(config.model_prices or {}, table={}),
            **(config.reflection_lm_kwargs or {}),
        )
        return ConcurrentReflection(
            model,
            template,
            failures=adapter.failures,
            journal=adapter.journal,
            budget=RecordBudget(config.reflection_prompt_tokens),
            shows_images=config.reflection_images is not False,
            check=check,
            hints=self.active_requests.hints,
        )

    def _search(self, reflection: Any) -> _SearchEnd:
        """Run GEPA. The one place where an `Interrupted` from inside GEPA is caught."""
        journal, splits = self.adapter.journal, self.initial.splits
        reserved = reserved_calls(self.config, splits)
        config = self._of_search(reserved)
        guard = FailureGuard(
            self.adapter.failures,
            self.emit,
            is_hopeless if config.reflection_lm is not None else None,
        )
        dropped = self.active_requests.dropped
        plan = strategies.search_plan(config, self.adapter, reflection, self.emit, splits, self.active_requests)
        arguments = plan.arguments
        perfect_score = config.perfect_score if config.skip_perfect_score else None
        datasets = ConcurrentDatasets(arguments["adapter"], arguments["module_selector"], perfect_score)
        strategy, selection = arguments["reflection_strategy"], arguments["selection_strategy"]
        proposals = ProposalWatcher(self.emit, self.adapter, self.active_requests, strategy, selection)
        watcher = RunWatcher(
            self.emit,
            self._best,
            journal,
            self.counters.live,
            seed=config.seed,
            use_merge=config.use_merge,
            proposals=proposals,
            fitted=reflection.fitted if isinstance(reflection, ConcurrentReflection) else None,
            rejecting=plan.rejecting,
            dropped=dropped,
        )
        warnings = RunWarnings(config, journal, self.emit)
        if is_deterministic(config, self.adapter.discovery):
            self.adapter.known = KnownResults(journal, lambda message: self.emit(Warned(message=message)))
            arguments["cache_evaluation"] = True  # GEPA's own look-up, before it evaluates validation rows
        chosen_by = selection_name(training_only=splits.training_only)
        perfect = perfect_stop(config.perfect_score, dropped, chosen_by, sampled=len(plan.val) < len(splits.val))
        stops: list[Stop] = [
            *([] if config.past_perfect else [perfect]),
            *stoppers(config, dropped),
            *([] if self.adapter.known is None else [NothingNewStop()]),
        ]
        budget = BudgetStop(arguments.pop("max_metric_calls"), reserved, lambda: journal.recorded_further)
        stop_all = SteeredStops(self._steering(watcher, budget, warnings), stops, budget, watcher.begun)
        callbacks = (datasets, proposals, watcher, guard, warnings, *stops)
        arguments |= {
            "module_selector": datasets,
            "reflection_strategy": proposals,
            "selection_strategy": proposals,
            "callbacks": [*arguments["callbacks"], *map(FailFastCallback, callbacks)],
            "stop_callbacks": [stop_all],
        }
        try:
            with code_counts_as_mergeable():
                result: GEPAResult[Any, int] = optimize(
                    seed_candidate=dict(self.initial.seed_candidate),
                    trainset=splits.train,
                    valset=plan.val,
                    logger=_GepaLog(),
                    **arguments,
                )
            journal.commit()
        except Interrupted as stopped:
            stop = self._recorded(stopped)
            more = guard.cause.details if guard.cause is not None else None
        except Exception as error:  # noqa: BLE001 - the results are kept and the cause is reported
            stop, more = stop_for(error), error_details(error)
        else:
            found = best_of_rest(result, dropped)
            reused = self._reused(watcher)
            ended = Finished(
                status="completed", reason=stop_all.reason, metric_calls=0, search_complete=True, reused=reused
            )
            return _SearchEnd(ended, found)
        ended = Finished(
            status=stop.status,
            reason=stop.reason,
            details=more if stop.status == "failed" else None,
            metric_calls=0,
            resume_with=["--max-metric-calls", str(SUGGESTED_METRIC_CALLS)] if warnings.lacks_limit else [],
            reused=self._reused(watcher),
            infrastructure=stop.infrastructure,
        )
        return _SearchEnd(ended, best_of_rest(watcher.result(), dropped))

    def _steering(self, watcher: RunWatcher, budget: BudgetStop, warnings: RunWarnings) -> Steering:
        """Return what takes the requests of users to this search."""

        def used(calls: int) -> dict[str, float]:
            return {
                "max_metric_calls": calls + budget.reserved,
                "max_cost_usd": self.adapter.journal.spending.cost_usd,
                "max_seconds": self.counters.active_seconds,
            }

        return Steering(
            self.adapter.journal,
            self.emit,
            self.active_requests,
            self.requests,
            max_tokens=self.config.max_component_tokens,
            program_proposes=self.config.reflection_lm is None,
            used=used,
            fixed={"max_cost_usd": SPEND_CAP} if self.adapter.journal.metered else {},
            set_limits=partial(self._set_limits, budget=budget, warnings=warnings),
            on_taken=watcher.on_steered,
        )

    def _set_limits(self, limits: Mapping[str, float], budget: BudgetStop, warnings: RunWarnings) -> None:
        """Have new limits recorded and applied."""
        self.on_limits(limits)
        warnings.config = warnings.config.model_copy(update=dict(limits))
        if (calls := limits.get("max_metric_calls")) is not None:
            budget.max_metric_calls = int(calls) - budget.reserved

    def _of_search(self, reserved: int) -> RunConfig:
        """Return the settings with the metric calls that the search may make."""
        budget = self.config.max_metric_calls
        if budget is None or not reserved:
            return self.config
        if budget <= reserved:
            setting = "tie_rows" if self.config.tie_rows else "validation"
            raise SettingsError(
                f"max_metric_calls is {budget:,}, and {setting} keeps {reserved:,} metric calls to compare the best "
                "candidates: raise the limit, or compare on fewer rows"
            )
        return self.config.model_copy(update={"max_metric_calls": budget - reserved})

    def _compare_ties(self, ending: _SearchEnd) -> _SearchEnd:
        """Compare the best candidates on fresh rows; return the end with the best one, or as it ends by this."""
        if ending.result is None:
            return ending
        try:
            found = compare_ties(self.adapter, self.config, self.initial.splits, ending.result, self.emit)
        except Interrupted as interrupted:
            return _interrupted(ending, interrupted, "the best candidates were compared", search_complete=False)
        except (ClientError, RpcError) as error:
            self.emit(Warned(message=f"the best candidates could not be compared: {stop_reason(error)}"))
            return ending
        return replace(ending, result=found)

    def _reused(self, watcher: RunWatcher) -> int | None:
        known = self.adapter.known
        return None if known is None else known.reused + watcher.validated_from_cache

    def _recorded(self, stopped: Interrupted) -> Interrupted:
        """Record the last decisions, and a completing stop for replays; return it, or what prevented the record."""
        journal = self.adapter.journal
        try:
            journal.commit(ended=True)
            if stopped.status == "completed" and not journal.replays:
                journal.stop(stopped)
        except Interrupted as lost:
            return lost
        return stopped

    def _best(self, candidate: dict[str, str]) -> None:
        if self.output is not None:
            self.owned()
            files.write_json(self.output / files.BEST_CANDIDATE, candidate)

    def _write(self, ending: _SearchEnd, tested: dict[int, float]) -> list[str]:
        """Write the result; `val_rows` gives the row behind each id of GEPA's scores."""
        result, output, val = ending.result, self.output, self.initial.splits.val
        if result is None or output is None:
            return []
        self.owned()
        if self._in_replay(ending):
            return [name for name in (files.BEST_CANDIDATE, files.RESULT) if (output / name).exists()]
        files.remove_reports(output)
        best_score, seed_score = best_and_seed_scores(result)
        files.write_json(output / files.BEST_CANDIDATE, result.candidates[result.best_idx])
        files.write_json(
            output / files.RESULT,
            {
                **result.to_dict(),
                "run_id": self.adapter.journal.run_id,
                "status": ending.finished.status,
                "program": self.adapter.discovery.program.model_dump(include={"name", "version", "digest"}),
                "best_score": best_score,
                "seed_score": seed_score,
                "val_rows": {str(row_id): row.id for row_id, row in zip(val.all_ids(), val.rows, strict=True)},
                "test_scores": {str(index): score for index, score in tested.items()},
            },
            default=journal_reference,
        )
        return [files.BEST_CANDIDATE, files.RESULT]

    def _test(
        self, ending: _SearchEnd, result: GEPAResult[Any, int], test: RowLoader, tested: dict[int, float]
    ) -> _SearchEnd:
        """Score seed and best on the test rows; return how the run ends after that."""
        self.emit(Phase(phase="testing"))
        rows = test.fetch(test.all_ids())
        journal = self.adapter.journal
        for index in sorted({0, result.best_idx}):
            try:
                decided = None if journal.replays else lambda: decide(self.noise())
                plan = recorded_plan(journal, result.best_idx, decided)
                repeats = [
                    self.adapter.score_rows(part_of_test(index, repeat), result.candidates[index], rows).scores
                    for repeat in range(plan.count)
                ]
            except Interrupted as interrupted:
                return _interrupted(ending, interrupted, "the test rows were scored")
            except (ClientError, RpcError) as error:
                self.emit(Warned(message=f"the test rows could not be scored: {stop_reason(error)}"))
                return ending
            if self.adapter.known is not None:
                for row, found in zip(rows, zip(*repeats, strict=True), strict=True):
                    self.adapter.known.compare(row, found)
            scores = [score for repeat in repeats for score in repeat]
            tested[index] = sum(scores) / len(scores)
            self.emit(Tested(index=index, score=tested[index], rows=len(rows), repeats=plan.count))
        return ending

    def _finalize(self, result: GEPAResult[Any, int]) -> None:
        """Call `finalize` of the program within a bounded time; the result is written already."""
        if not self.adapter.offers("finalize"):
            return
        self.emit(Phase(phase="finalizing"))
        limit_s = FINALIZE_LIMIT_S
        best_score, seed_score = best_and_seed_scores(result)
        try:
            message = self.adapter.finalize(
                result.candidates[result.best_idx],
                best_score,
                {
                    "id": self.adapter.journal.run_id,
                    "metric_calls": result.total_metric_calls or 0,
                    "candidates": len(result.candidates),
                    "seed_score": seed_score,
                },
                timeout_s=limit_s,
            )
        except TimeoutError:
            self.emit(Finalized(error=f"no answer within {limit_s:g} s"))
        except (Interrupted, ClientError, RpcError) as error:
            self.emit(Finalized(error=stop_reason(error)))
        else:
            if message is not None and self.config.repo is not None:
                message += " (in its sandbox, which ends with the run)"
            self.emit(Finalized(message=message, endpoint=self.adapter.finalized_by))
