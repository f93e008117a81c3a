"""Written by scripts/settings_reference.py from the settings' definitions: do not edit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict


class OptimizeSettings(TypedDict, total=False):
    """Settings of a run and of its server."""

    val_fraction: float | None
    """Share of the training rows to keep for validation if there is no valset; 0 uses all rows for both."""

    tie_rows: int
    """Compare best candidates that tie (4 at most) on N unused training rows: up to 4 N metric calls."""

    test_fraction: float
    """Share of the training rows to keep as test rows, such as 0.2, if there is no testset; drawn by `seed`."""

    failure_score: float
    """Score of an example on which the program fails or times out."""

    max_metric_calls: int | None
    """Stop after N evaluated examples, those of the seed too; checked once per iteration."""

    auto: Literal["light", "medium", "heavy"] | None
    """Compute max_metric_calls as `dspy.GEPA(auto=...)` does."""

    max_cost_usd: float | None
    """Stop after X US dollars, of the costs that servers and models report."""

    max_seconds: float | None
    """Stop after X seconds of work; pauses do not count."""

    patience: int | None
    """Stop after N iterations without a better candidate."""

    target_score: float | None
    """Stop at this score on the validation rows."""

    past_perfect: bool
    """Continue although a candidate has the perfect score on every validation row."""

    max_iterations: int | None
    """Stop after N iterations."""

    failure_stop: float | None
    """Pause if more than this share of the last 50 examples fail in the program."""

    reflection_lm: str | None
    """Model that proposes new texts, by litellm's name such as openai/gpt-5; it needs the provider's key."""

    reflection_lm_kwargs: dict[str, Any] | None
    """Arguments of each call to it, such as temperature or api_base."""

    reflection_prompt_template: str | dict[str, str] | None
    """Its prompt, with <curr_param> and <side_info>; as JSON, one per component (git_branch: that of code)."""

    reflection_minibatch_size: int | None
    """Examples per reflection."""

    reflection_prompt_tokens: int | None
    """Tokens of a prompt: longer records are cut in the middle. A token is counted as 4 bytes."""

    max_component_tokens: int | None
    """Tokens of a proposed text, which the model is asked to keep to. A token is counted as 4 bytes."""

    reflection_per_minute: float | None
    """Calls to the reflection model per minute, evenly spaced."""

    module_selector: Literal["round_robin", "all"]
    """Components that one proposal changes."""

    skip_perfect_score: bool
    """Do not reflect on a minibatch of perfect scores."""

    perfect_score: float
    """The highest score that a row can have; such a row is not reflected on."""

    score_range: Sequence[float] | None
    """The lowest and the highest score that there can be: the test of a certificate rests on them."""

    proposals: str
    """Proposals per iteration: P from P parents, or N from each of them."""

    candidate_selection_strategy: Literal["pareto", "current_best", "epsilon_greedy", "top_k_pareto"]
    """Which candidate is improved next."""

    selection_strategy: str
    """Improving proposals kept per iteration."""

    frontier_type: Literal["instance", "objective", "hybrid", "cartesian"]
    """What the Pareto front is kept over."""

    validation: str
    """Score proposals on all validation rows, or race them on N of these; M others confirm the best one."""

    cache_evaluation: bool
    """Score a candidate on the same row only once."""

    deterministic: bool | None
    """The program gives a candidate the same result on a row each time, so that its results are reused."""

    use_merge: bool
    """Also merge candidates that are good at different rows."""

    seed: int
    """Seed of every random choice."""

    acceptance_criterion: Literal["strict_improvement", "improvement_or_equal", "paired", "strict", "equal"]
    """When a proposal is accepted: a higher sum of scores on its minibatch, no lower sum, or a paired test."""

    score_with: Sequence[str] | str
    """Server that scores what the program leaves unscored, as a line of a fleet file; repeatable."""

    allow_mixed_programs: bool
    """Allow programs of other names or results, or that change during the run, with the same components."""

    evolve: Literal["code", "prompts", "both"] | None
    """What is changed."""

    model_prices: dict[str, Sequence[float]] | None
    """US dollars per million tokens, if unknown or others: {"MODEL": [IN, OUT]}."""

    tracking: Sequence[Literal["wandb", "mlflow"]]
    """Experiment tracker to log to, which must be installed and reads its own variables; repeatable."""

    name: str | None
    """Name of the run, a part of its id."""

    output: Path | str | None
    """Folder for the results, new or empty."""

    store: str | None
    """Database of runs: a file, or mongodb://..."""

    check: Literal["strict", "warn", "off"]
    """Try a few training rows first: faults stop the run (strict) or warn (warn); off: no trial."""

    lease_s: float
    """Seconds without a heartbeat after which another process may resume the run."""

    adapter: str | None
    """GEPAAdapter class, or a function that makes one."""

    command: Sequence[str] | str | None
    """Command that reads JSON-RPC from stdin and answers on stdout, one a line; quoted, or as the last flag."""

    seed_candidate: dict[str, str] | Path | str | None
    """Texts to begin with, as JSON or a JSON file; an adapter needs it."""

    python: Path | str | None
    """Interpreter that runs the program."""

    kind: Literal["program", "adapter", "command", "dspy"] | None
    """Kind of program; only dspy must be given."""

    version: str | None
    """Version of the program; alone, print that of evolverpc and exit."""

    root: Path | str
    """Folder that paths start from and the program runs in."""

    env: dict[str, str]
    """Variable for the program's environment; repeatable."""

    adapter_args: dict[str, Any]
    """Arguments of the adapter."""

    artifacts: Path | str | None
    """Folder that `finalize` writes to: its files are copied from a sandbox into the run's folder."""

    metric: str | None
    """Metric: takes (example, prediction) or GEPA's five arguments."""

    inputs: Sequence[str] | str | None
    """Field of the rows that the program is called with; repeatable. The metric gets all fields."""

    saved_program_json_path: Path | str | None
    """Saved program: read at the start, written by `finalize`."""

    dspy: Any
    """Options of dspy.GEPA, such as {"demos": true, "reflection_lm": "pkg.module.lm"}; the guide has all."""

    concurrency: int
    """Examples at the same time, in all processes together; for an adapter, calls."""

    workers: int | None
    """Processes of the program."""

    example_timeout_s: float | None
    """Seconds that one example may run; inf for no limit."""

    trust_results: bool
    """Score what the program returns, even if its last call of a model failed."""

    model_hosts: Sequence[str] | str
    """Host of a model that is not known by its requests, with or without a port; repeatable."""

    logs: bool
    """Print what the program writes, each example's as it ends."""

    start_timeout_s: float
    """Seconds that the program may take to start."""

    datasets: dict[str, Path]
    """Rows to hold: a .json, .jsonl or .csv file per split; repeatable."""

    max_batch_size: int
    """Examples in one call."""
