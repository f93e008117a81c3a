"""Build GEPA's own objects from the settings: strategies, stoppers, and what evolving code needs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from gepa.core.state import GEPAState
from gepa.strategies.proposal_sampling import (
    IndependentSampling,
    PxNSampling,
    SameParentSampling,
    SamplingStrategy,
    SingleMutationSampling,
)
from gepa.strategies.proposal_selection import AllImprovements, BestImprovement, SelectionStrategy, TopKImprovements
from gepa.utils import (
    MaxCandidateProposalsStopper,
    NoImprovementStopper,
    ScoreThresholdStopper,
    StopperProtocol,
)
from gepa.utils.stop_condition import MaxTrackedCandidatesStopper

from gepa_client.evolution.code_adapter import CodeMerge, EvolvingAdapter
from gepa_client.evolution.code_reflection import DEFAULT_TEMPLATE, CodeReflection
from gepa_client.evolution.lineage import Lineage, ScoringSelection
from gepa_client.evolution.mutations import MutationRunner
from gepa_client.evolution.selector import ComponentSelector, Schedule
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.reflection import ConcurrentReflection
from gepa_client.gepa.rows import RowLoader
from gepa_client.journal.run_events import Emit
from gepa_client.run.certain_stop import CertainStop
from gepa_client.run.resolved_settings import evolve_of, races
from gepa_client.run.run_watcher import FailFastCallback
from gepa_client.selection.paired_acceptance import DecidingSelection, PairedAcceptance
from gepa_client.selection.race import RacedSelection, RacingAdapter
from gepa_client.settings.groups import ACCEPTANCE_ERROR, ACCEPTANCE_MINIBATCHES
from gepa_client.settings.run_config import RunConfig
from protocol.code import GIT_BRANCH

PASSED = (
    *("reflection_prompt_template", "reflection_minibatch_size", "batch_sampler", "module_selector"),
    *("skip_perfect_score", "perfect_score", "candidate_selection_strategy", "frontier_type", "acceptance_criterion"),
    *("val_evaluation_policy", "cache_evaluation", "track_best_outputs", "max_metric_calls", "raise_on_exception"),
    *("use_merge", "max_merge_invocations", "merge_val_overlap_floor", "seed"),
    *("use_wandb", "wandb_init_kwargs", "use_mlflow", "mlflow_tracking_uri", "mlflow_experiment_name"),
    "tracking_key_prefix",
)
"""Settings that `gepa.optimize` takes unchanged."""

LEAST_IDLE = 100
"""Iterations in a row that evaluate nothing before a search ends; more if there are more training rows."""

MINIBATCH = 3
"""GEPA's default."""

_STOPPERS: dict[str, Any] = {
    "patience": NoImprovementStopper,
    "target_score": ScoreThresholdStopper,
    "max_candidates": MaxTrackedCandidatesStopper,
    "max_iterations": MaxCandidateProposalsStopper,
}
"""Stoppers that use GEPA's state alone, so that a replay stops where the run did."""


def arguments(config: RunConfig) -> dict[str, Any]:
    """Return the arguments of `gepa.optimize` that follow from the settings alone."""
    return {
        **{name: getattr(config, name) for name in PASSED},
        "sampling_strategy": sampling(config.sampling),
        "selection_strategy": selection(config.selection_strategy),
    }


def acceptance_arguments(config: RunConfig, arguments: Mapping[str, Any], train: RowLoader) -> dict[str, Any]:
    """Return the arguments of `gepa.optimize` that take the place of others if the acceptance is a paired test.

    `arguments`: those others, among them the `adapter` that GEPA has.

    Raises:
        SettingsError: no proposal could be accepted.
    """
    if config.acceptance_criterion != "paired":
        return {}
    minibatch = config.reflection_minibatch_size or MINIBATCH
    acceptance = PairedAcceptance(
        arguments["adapter"],
        train,
        minibatch,
        config.acceptance_error or ACCEPTANCE_ERROR,
        config.acceptance_rows or ACCEPTANCE_MINIBATCHES * minibatch,
        config.seed,
    )
    return {
        "acceptance_criterion": acceptance,
        "selection_strategy": DecidingSelection(arguments["selection_strategy"], acceptance),
    }


class Stop(StopperProtocol, Protocol):
    """Ends a search between two iterations. `reason`: why it did, None until it does."""

    reason: str | None


@dataclass
class StateStop:
    """One of GEPA's stoppers with the setting it comes from. `reason`: why it ended the search, None until it does."""

    setting: str
    value: float
    reason: str | None = None

    def __post_init__(self) -> None:
        self._stopper: StopperProtocol = _STOPPERS[self.setting](self.value)

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        stops = self._stopper(gepa_state)
        if stops:
            self.reason = f"{self.setting} of {self.value:,g} is reached: {self._found(gepa_state)}"
        return stops

    def _found(self, state: GEPAState[Any, Any]) -> str:
        """Return what the stopper found in GEPA's state."""
        scores = state.program_full_scores_val_set
        best = f"{max(scores):.4g}" if scores else "none"
        match self.setting:
            case "patience":
                iterations = "iteration" if self.value == 1 else f"{self.value:,} iterations"
                return f"no better candidate in the last {iterations}; the best validation score is {best}"
            case "target_score":
                return f"the best validation score is {best}"
            case "max_candidates":
                return f"candidates found: {len(state.program_candidates):,}"
            case _:
                return f"iterations done: {state.i + 1:,}"


@dataclass
class PerfectStop:
    """Ends the search once a candidate has the perfect score on every validation row. `reason`: as in `StateStop`."""

    perfect: float
    reason: str | None = None

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        for index, scores in enumerate(gepa_state.prog_candidate_val_subscores):
            if scores and all(score == self.perfect for score in scores.values()):
                which = "the seed" if index == 0 else f"candidate {index}"
                self.reason = (
                    f"perfect_score of {self.perfect:g} is reached: {which} has it on all {len(scores):,} validation "
                    "rows (--past-perfect continues)"
                )
                return True
        return False


@dataclass
class NothingNewStop:
    """Ends a search that reuses results once no iteration evaluates anything: such iterations use up no budget.

    `train`: the number of training rows. `reason`: as in `StateStop`.
    """

    train: int
    reason: str | None = None
    _evaluated: int = 0
    _since: int = 0

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        if gepa_state.total_num_evals > self._evaluated:
            self._evaluated, self._since = gepa_state.total_num_evals, gepa_state.i
        idle = gepa_state.i - self._since
        if idle < max(LEAST_IDLE, self.train):
            return False
        self.reason = f"the last {idle:,} iterations evaluated nothing new: all their results were known"
        return True


def stoppers(config: RunConfig) -> list[Stop]:
    """Return GEPA's stoppers that use its state alone, in the order of the settings."""
    given = {name: getattr(config, name) for name in _STOPPERS}
    stops: list[Stop] = [StateStop(name, value) for name, value in given.items() if value is not None]
    if config.stop_when_certain is not None:
        stops.append(CertainStop(config.stop_when_certain, config.max_metric_calls, config.max_iterations))
    return stops


def sampling(text: str) -> SamplingStrategy[Any, Any]:
    """Build `single`, `same_parent:4`, `independent:4` or `pxn:2x4`."""
    kind, _, numbers = text.partition(":")
    built = {
        "single": SingleMutationSampling,
        "same_parent": SameParentSampling,
        "independent": IndependentSampling,
        "pxn": PxNSampling,
    }[kind](*map(int, re.findall(r"\d+", numbers)))
    return cast("SamplingStrategy[Any, Any]", built)


def selection(text: str) -> SelectionStrategy:
    """Build `all`, `best` or `top_k:2`."""
    kind, _, count = text.partition(":")
    if kind == "top_k":
        return TopKImprovements(int(count))
    return BestImprovement() if kind == "best" else AllImprovements()


def racing(
    arguments: dict[str, Any], adapter: RemoteAdapter, val: RowLoader, config: RunConfig
) -> RacedSelection | None:
    """Have the proposals raced that `arguments` of `gepa.optimize` select, and return the race; None without one.

    Raises: as `races`.
    """
    if not races(config, adapter.discovery):
        return None
    race = RacedSelection(arguments["selection_strategy"], adapter, val, config.seed, config.perfect_score)
    if isinstance(race.selection, ScoringSelection):
        race.on_lost = race.selection.lineage.lost
    arguments |= {"selection_strategy": race, "adapter": RacingAdapter(arguments["adapter"], race)}
    return race


def evolution_arguments(config: RunConfig, adapter: RemoteAdapter, reflection: Any, emit: Emit) -> dict[str, Any]:
    """Return the arguments of `gepa.optimize` that depend on what evolves, among them its `adapter` and `callbacks`.

    `reflection`: proposes the texts. `emit`: gets the events of code mutations.

    Raises:
        SettingsError: as `evolve_of`.
    """
    evolve = evolve_of(config, adapter.discovery)
    unchanged = {"adapter": adapter, "reflection_strategy": reflection, "callbacks": adapter.callbacks}
    if GIT_BRANCH not in adapter.seed_candidate:
        return unchanged
    schedule = None
    if config.prompts_per_code is not None:
        schedule = Schedule(config.prompts_per_code, config.decay_factor or 1.0, config.decay_every or 1)
    selector = ComponentSelector(
        evolve,
        adapter.commits.unused,
        schedule=schedule,
        code_until=config.code_until,
        all_at_once=config.module_selector == "all",
    )
    if evolve == "prompts" or not isinstance(reflection, ConcurrentReflection):
        return unchanged | {"module_selector": selector}
    lineage = Lineage(adapter.commits)
    mutations = MutationRunner(adapter, lineage, emit, config.mutation_timeout_s)
    merge = CodeMerge(adapter, mutations)
    return {
        "adapter": EvolvingAdapter(adapter, merge),
        "reflection_strategy": CodeReflection(
            adapter, reflection, mutations, lineage, config.code_prompt_template or DEFAULT_TEMPLATE
        ),
        "callbacks": [*adapter.callbacks, FailFastCallback(lineage), FailFastCallback(merge)],
        "module_selector": selector,
        "selection_strategy": ScoringSelection(selection(config.selection_strategy), lineage),
    }
