"""Written by scripts/settings_reference.py from the settings' definitions: do not edit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict


class OptimizeSettings(TypedDict, total=False):
    """Settings of a run and of its server, which docs/settings.md describes."""

    val_fraction: float | None
    tie_rows: int
    test_fraction: float
    failure_score: float
    max_metric_calls: int | None
    auto: Literal["light", "medium", "heavy"] | None
    max_cost_usd: float | None
    max_seconds: float | None
    patience: int | None
    target_score: float | None
    past_perfect: bool
    max_iterations: int | None
    failure_stop: float | None
    reflection_lm: str | None
    reflection_lm_kwargs: dict[str, Any] | None
    reflection_prompt_template: str | dict[str, str] | None
    reflection_minibatch_size: int | None
    reflection_prompt_tokens: int | None
    max_component_tokens: int | None
    reflection_per_minute: float | None
    module_selector: Literal["round_robin", "all"]
    skip_perfect_score: bool
    perfect_score: float
    score_range: Sequence[float] | None
    proposals: str
    candidate_selection_strategy: Literal["pareto", "current_best", "epsilon_greedy", "top_k_pareto"]
    selection_strategy: str
    frontier_type: Literal["instance", "objective", "hybrid", "cartesian"]
    validation: str
    cache_evaluation: bool
    deterministic: bool | None
    use_merge: bool
    seed: int
    acceptance_criterion: Literal["strict_improvement", "improvement_or_equal", "paired", "strict", "equal"]
    score_with: Sequence[str] | str
    allow_mixed_programs: bool
    evolve: Literal["code", "prompts", "both"] | None
    model_prices: dict[str, Sequence[float]] | None
    tracking: Sequence[Literal["wandb", "mlflow"]]
    name: str | None
    output: Path | str | None
    store: str | None
    check: Literal["strict", "warn", "off"]
    lease_s: float
    adapter: str | None
    command: Sequence[str] | str | None
    seed_candidate: dict[str, str] | Path | str | None
    python: Path | str | None
    kind: Literal["program", "adapter", "command", "dspy"] | None
    version: str | None
    root: Path | str
    env: dict[str, str]
    adapter_args: dict[str, Any]
    artifacts: Path | str | None
    install: dict[str, Any] | None
    rollouts: dict[str, str]
    metric: str | None
    inputs: Sequence[str] | str | None
    saved_program_json_path: Path | str | None
    dspy: Any
    concurrency: int
    workers: int | None
    example_timeout_s: float | None
    trust_results: bool
    model_hosts: Sequence[str] | str
    logs: bool
    start_timeout_s: float
    datasets: dict[str, Path]
    max_batch_size: int
