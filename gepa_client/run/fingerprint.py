"""Which settings may change when a run is resumed, and which make it the run it is."""

from typing import Any

from gepa_client.settings.run_config import CALL_BUDGETS, OutputSettings, RunConfig, TrackingSettings
from gepa_client.settings.sandbox_settings import SandboxSettings
from gepa_client.settings.secrets import NOT_RECORDED

MAY_CHANGE = frozenset(
    {
        # who does the work: answers come from the same program wherever it is
        *("url", "fleet", "token_file", "allow_insecure", "allow_mixed_programs", "max_attempts", "max_outage_s"),
        *("score_with", "score_token_file"),
        *SandboxSettings.model_fields,
        # where the rows are; that they are the same rows is seen in the rows themselves
        *("trainset", "valset", "testset"),
        # when to stop
        *CALL_BUDGETS,
        *("max_cost_usd", "max_reflection_cost", "max_seconds", "patience", "target_score"),
        *("stop_callbacks", "max_failed_iterations", "failure_stop", "raise_on_exception"),
        # how fast a model is asked
        *("reflection_workers", "reflection_per_minute"),
        # how long a change of code may take: what it came to is recorded
        "mutation_timeout_s",
        # who is told
        *TrackingSettings.model_fields,
        *OutputSettings.model_fields,
    }
)
"""Settings that may be other ones when a run is resumed: the requests it makes, and their order, stay the same."""

IDENTITY = frozenset(
    {
        *("failure_score", "reflection", "reflection_lm", "reflection_lm_kwargs", "reflection_prompt_template"),
        *("reflection_minibatch_size", "batch_sampler", "skip_perfect_score", "perfect_score", "module_selector"),
        *("evolve", "prompts_per_code", "decay_factor", "decay_every", "code_until", "code_prompt_template"),
        *("candidate_selection_strategy", "frontier_type", "proposals", "sampling_strategy", "selection_strategy"),
        *("acceptance_criterion", "val_evaluation_policy", "cache_evaluation", "track_best_outputs"),
        *("use_merge", "max_merge_invocations", "merge_val_overlap_floor", "seed"),
    }
)
"""Settings that make a run this run and no other: with another value a replay would ask for something else."""

REACHED_BY = frozenset({"api_base", "base_url", "azure_endpoint", "proxy", "timeout", "request_timeout"})
"""Arguments of a reflection model that say how it is reached, not which one it is."""


def identity_settings(config: RunConfig) -> dict[str, Any]:
    """The settings of `IDENTITY` as JSON, written alike where they mean the same; secrets are no part of it.

    `evolve` is left out: what it comes to depends on the program, and `gepa_client.run.identity` says it.
    """
    recorded = config.recorded()
    found = {key: recorded[key] for key in sorted(IDENTITY - {"proposals", "evolve"})}
    found["sampling_strategy"] = config.sampling
    found["reflection"] = "program" if config.reflection_lm is None else "model"
    found["reflection_lm_kwargs"] = {
        key: value
        for key, value in (recorded["reflection_lm_kwargs"] or {}).items()
        if value != NOT_RECORDED and key not in REACHED_BY
    }
    return found
