"""Builds GEPA's own objects from the words a configuration file can hold."""

import re
from dataclasses import dataclass
from typing import Any, Literal

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

from gepa_client.settings.notation import parse_stopper
from gepa_client.settings.run_config import RunConfig

PASSED = (
    "candidate_selection_strategy",
    "frontier_type",
    "skip_perfect_score",
    "batch_sampler",
    "reflection_minibatch_size",
    "perfect_score",
    "reflection_prompt_template",
    "module_selector",
    "use_merge",
    "max_merge_invocations",
    "merge_val_overlap_floor",
    "max_metric_calls",
    "use_wandb",
    "wandb_api_key",
    "wandb_init_kwargs",
    "use_mlflow",
    "mlflow_tracking_uri",
    "mlflow_experiment_name",
    "tracking_key_prefix",
    "track_best_outputs",
    "cache_evaluation",
    "seed",
    "raise_on_exception",
    "val_evaluation_policy",
    "acceptance_criterion",
)
"""Settings that `gepa.optimize` takes exactly as they are."""

BUILT = (
    "trainset",
    "valset",
    "reflection_lm",
    "reflection_lm_kwargs",
    "stop_callbacks",
    "sampling_strategy",
    "selection_strategy",
)
"""Settings of the same name that become an object first: loaders, a reflection strategy, stoppers, strategies."""

ENFORCED = ("max_reflection_cost",)
"""Settings of the same name that the run holds itself to, by what its journal says was spent."""

_STOPPERS: dict[str, Any] = {
    "no_improvement": NoImprovementStopper,
    "score_threshold": ScoreThresholdStopper,
    "max_tracked_candidates": MaxTrackedCandidatesStopper,
    "max_candidate_proposals": MaxCandidateProposalsStopper,
}
"""Stoppers that see GEPA's state alone, so that a replay stops where the run did."""


@dataclass(frozen=True)
class ExternalStop:
    """A stopper that reads what no replay could repeat. `value`: seconds of a `timeout`, the path of a `file`."""

    kind: Literal["timeout", "file"]
    value: float | str


def arguments(config: RunConfig) -> dict[str, Any]:
    """The arguments of `gepa.optimize` that follow from the settings alone."""
    return {
        **{name: getattr(config, name) for name in PASSED},
        "sampling_strategy": sampling(config.sampling),
        "selection_strategy": selection(config.selection_strategy),
    }


@dataclass
class StateStop:
    """One of GEPA's stoppers with the setting it comes from. `reason`: why it ended the search, None until it does."""

    kind: str
    value: Any
    setting: str
    reason: str | None = None

    def __post_init__(self) -> None:
        self._stopper: StopperProtocol = _STOPPERS[self.kind](self.value)

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Whether the search is over."""
        stops = self._stopper(gepa_state)
        if stops:
            self.reason = f"{self.setting} is reached: {self._found(gepa_state)}"
        return stops

    def _found(self, state: GEPAState[Any, Any]) -> str:
        """What the stopper saw in GEPA's state."""
        scores = state.program_full_scores_val_set
        best = f"{max(scores):.4g}" if scores else "none"
        match self.kind:
            case "no_improvement":
                iterations = "iteration" if self.value == 1 else f"{self.value:,} iterations"
                return f"no better candidate in the last {iterations}; the best validation score is {best}"
            case "score_threshold":
                return f"the best validation score is {best}"
            case "max_tracked_candidates":
                return f"candidates found: {len(state.program_candidates):,}"
            case _:
                return f"iterations done: {state.i + 1:,}"


def stoppers(config: RunConfig) -> list[StateStop]:
    """The stoppers that look at GEPA's state alone, in the order of the settings."""
    named = [(*parse_stopper(text), f"stop_callbacks {text}") for text in config.stop_callbacks]
    if config.patience is not None:
        named.append(("no_improvement", config.patience, f"patience of {config.patience:,}"))
    if config.target_score is not None:
        named.append(("score_threshold", config.target_score, f"target_score of {config.target_score:g}"))
    return [StateStop(kind, value, setting) for kind, value, setting in named if kind in _STOPPERS]


def external_stops(config: RunConfig) -> list[ExternalStop]:
    """The stoppers of `stop_callbacks` that `stoppers` leaves out: they read the clock or the disk."""
    found = []
    for text in config.stop_callbacks:
        match parse_stopper(text):
            case "timeout", int() | float() as seconds:
                found.append(ExternalStop("timeout", float(seconds)))
            case "file", str() as path:
                found.append(ExternalStop("file", path))
    return found


def sampling(text: str) -> SamplingStrategy[Any, Any]:
    """`single`, `same_parent:4`, `independent:4`, `pxn:2x4`."""
    kind, _, numbers = text.partition(":")
    counts = [int(number) for number in re.findall(r"\d+", numbers)]
    match kind:
        case "same_parent":
            return SameParentSampling(*counts)
        case "independent":
            return IndependentSampling(*counts)
        case "pxn":
            return PxNSampling(*counts)
        case _:
            return SingleMutationSampling()


def selection(text: str) -> SelectionStrategy:
    """`all`, `best`, `top_k:2`."""
    kind, _, count = text.partition(":")
    match kind:
        case "best":
            return BestImprovement()
        case "top_k":
            return TopKImprovements(int(count))
        case _:
            return AllImprovements()
