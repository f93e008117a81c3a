"""Builds GEPA's own objects from the words a configuration file can hold."""

import re
from typing import Any

from gepa.strategies.proposal_sampling import (
    IndependentSampling,
    PxNSampling,
    SameParentSampling,
    SamplingStrategy,
    SingleMutationSampling,
)
from gepa.strategies.proposal_selection import AllImprovements, BestImprovement, SelectionStrategy, TopKImprovements
from gepa.utils import (
    FileStopper,
    MaxCandidateProposalsStopper,
    NoImprovementStopper,
    ScoreThresholdStopper,
    StopperProtocol,
    TimeoutStopCondition,
)
from gepa.utils.stop_condition import MaxTrackedCandidatesStopper

from gepa_client.run.config import RunConfig, parse_stopper

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
    "max_reflection_cost",
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

_STOPPERS: dict[str, Any] = {
    "timeout": TimeoutStopCondition,
    "no_improvement": NoImprovementStopper,
    "score_threshold": ScoreThresholdStopper,
    "max_tracked_candidates": MaxTrackedCandidatesStopper,
    "max_candidate_proposals": MaxCandidateProposalsStopper,
    "file": FileStopper,
}


def arguments(config: RunConfig) -> dict[str, Any]:
    """The arguments of `gepa.optimize` that follow from the settings alone. A timeout starts to run here."""
    return {
        **{name: getattr(config, name) for name in PASSED},
        "stop_callbacks": [stopper(text) for text in config.stop_callbacks] or None,
        "sampling_strategy": sampling(config.sampling_strategy),
        "selection_strategy": selection(config.selection_strategy),
    }


def stopper(text: str) -> StopperProtocol:
    """`timeout:60` and the like, as `gepa_client.run.config` has checked them."""
    kind, value = parse_stopper(text)
    built: StopperProtocol = _STOPPERS[kind](value)
    return built


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
