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

from gepa_client.run.config import RunConfig
from gepa_client.run.notation import parse_stopper

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
        "stop_callbacks": stoppers(config) or None,
        "sampling_strategy": sampling(config.sampling),
        "selection_strategy": selection(config.selection_strategy),
    }


def stoppers(config: RunConfig) -> list[StopperProtocol]:
    """What ends the search by GEPA's state; where nothing does, one that never ends it, as GEPA wants a stopper."""
    parsed = [parse_stopper(text) for text in config.stop_callbacks]
    built: list[StopperProtocol] = [_STOPPERS[kind](value) for kind, value in parsed if kind in _STOPPERS]
    if config.patience is not None:
        built.append(NoImprovementStopper(config.patience))
    if config.target_score is not None:
        built.append(ScoreThresholdStopper(config.target_score))
    return built if built or config.max_metric_calls is not None else [_never]


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


def _never(gepa_state: GEPAState[Any, Any]) -> bool:  # noqa: ARG001 - GEPA calls every stopper with its state
    return False


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
