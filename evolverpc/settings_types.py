"""Written by scripts/settings_reference.py from the settings' definitions: do not edit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict


class OptimizeSettings(TypedDict, total=False):
    """Settings of `gepa-client optimize`."""

    val_fraction: float | None
    """Share of the training rows to keep for validation if there is no valset; 0 uses all rows for both."""

    tie_rows: int
    """Compare best candidates that tie (4 at most) on N unused training rows: up to 4 N metric calls."""

    test_repeats: int | None
    """Score each test row N times with the seed and with the best candidate."""

    failure_score: float
    """Score of an example on which the program fails or times out."""

    max_metric_calls: int | None
    """Stop after N evaluated examples; checked once per iteration."""

    auto: Literal["light", "medium", "heavy"] | None
    """Compute max_metric_calls as `dspy.GEPA(auto=...)` does."""

    max_cost_usd: float | None
    """Stop after X US dollars, as reported by servers and models."""

    max_seconds: float | None
    """Stop after X seconds of work; pauses do not count."""

    max_full_evals: int | None
    """Set max_metric_calls to N evaluations of all training and validation rows."""

    max_reflection_cost: float | None
    """Stop after X US dollars spent on the reflection model."""

    patience: int | None
    """Stop after N iterations without a better candidate."""

    target_score: float | None
    """Stop at this score on the validation rows."""

    past_perfect: bool
    """Continue although a candidate has the perfect score on every validation row."""

    max_iterations: int | None
    """Stop after N iterations."""

    max_candidates: int | None
    """Stop at N candidates, the seed included."""

    stop_file: Path | str | None
    """Stop when this file exists; checked once per iteration."""

    failure_stop: float | None
    """Pause if more than this share of the last 50 examples fail in the program."""

    max_failed_iterations: int
    """Fail after N failed iterations in a row."""

    raise_on_exception: bool
    """Fail at the first exception of an iteration."""

    reflection_lm: str | None
    """Model that proposes new texts, by litellm's name such as openai/gpt-5."""

    reflection_lm_kwargs: dict[str, Any] | None
    """Arguments of each call to it, such as temperature or api_base."""

    reflection_prompt_template: str | dict[str, str] | None
    """Its prompt, with <curr_param> and <side_info>; as JSON, one per component."""

    reflection_minibatch_size: int | None
    """Examples per reflection."""

    reflection_prompt_tokens: int | None
    """Tokens of a prompt: longer records are cut in the middle. A token is counted as 4 bytes."""

    reflection_record_tokens: int | None
    """Tokens of one record in it."""

    reflection_images: bool | None
    """Show it the images of records; else it reads their type and size."""

    max_component_tokens: int | None
    """Tokens of a proposed text, which the model is asked to keep to. A token is counted as 4 bytes."""

    check_answers: bool
    """Ask the model once more if its answer holds no new text to use, then drop it."""

    reflection_workers: int
    """Calls to the reflection model at the same time."""

    reflection_per_minute: float | None
    """Calls to the reflection model per minute, evenly spaced."""

    module_selector: Literal["round_robin", "all"]
    """Components that one proposal changes."""

    batch_sampler: Literal["epoch_shuffled"]
    """How minibatches are drawn."""

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

    validation: Literal["full", "race"]
    """Score each improving proposal on all validation rows, or race it on a sample and drop it once it loses."""

    race_rows: int | None
    """How many random validation rows a raced search scores candidates on; 0 for all."""

    race_final_rows: int | None
    """How many other validation rows compare the best candidate with the seed after a raced search."""

    cache_evaluation: bool
    """Score a candidate on the same row only once."""

    deterministic: bool | None
    """The program gives a candidate the same result on a row each time, so that its results are reused."""

    use_merge: bool
    """Also merge candidates that are good at different rows."""

    seed: int
    """Seed of every random choice."""

    max_merge_invocations: int
    """Merges tried in all."""

    merge_val_overlap_floor: int
    """Validation rows that merged candidates share."""

    acceptance_criterion: Literal["strict_improvement", "improvement_or_equal", "paired", "strict", "equal"]
    """When a proposal is accepted: a higher sum of scores on its minibatch, no lower sum, or a paired test."""

    acceptance_error: float | None
    """Share of proposals no better than their parent that `paired` accepts, at most."""

    acceptance_rows: int | None
    """Training rows on which `paired` compares a proposal with its parent, at most."""

    val_evaluation_policy: Literal["full_eval"]
    """Validation rows scored per candidate."""

    track_best_outputs: bool
    """Keep the best outputs on the validation rows."""

    score_with: Sequence[str] | str
    """Server that scores what the program leaves unscored; repeatable."""

    score_token_file: Path | str | None
    """File that holds the token of the scoring servers."""

    allow_mixed_programs: bool
    """Allow programs of different names, or that change during the run, with the same components."""

    max_in_flight: int | None
    """Examples in flight at the same time, over all servers together."""

    example_timeout_s: float | None
    """Seconds that one example may run, if less than the server's own limit."""

    max_attempts: int
    """Attempts per example before a failure of the infrastructure pauses the run."""

    max_outage_s: float
    """Pause the run after X seconds without a reachable server."""

    evolve: Literal["code", "prompts", "both"] | None
    """What is changed."""

    prompts_per_code: int | None
    """Prompt steps after each code step."""

    code_prompt_template: str | None
    """Prompt for change requests, with <outline>, <side_info> and <lineage>."""

    code_until: int | None
    """Last iteration that changes code."""

    decay_factor: float | None
    """Multiply prompts_per_code by X every decay_every iterations."""

    decay_every: int | None
    """Iterations after which code becomes rarer."""

    mutation_timeout_s: float
    """Seconds that one change of code may take, checks included."""

    model_prices: dict[str, Sequence[float]] | None
    """US dollars per million tokens, if unknown or others: {"MODEL": [IN, OUT]}."""

    use_wandb: bool
    """Log to Weights & Biases (wandb must be installed)."""

    wandb_init_kwargs: dict[str, Any] | None
    """Arguments of wandb.init."""

    use_mlflow: bool
    """Log to MLflow (mlflow must be installed)."""

    mlflow_tracking_uri: str | None
    """Tracking server of MLflow."""

    mlflow_experiment_name: str | None
    """Experiment of MLflow."""

    tracking_key_prefix: str
    """Prefix of every metric's name."""

    name: str | None
    """Name of the run, a part of its id."""

    output: Path | str | None
    """Folder for the results, new or empty."""

    store: str | None
    """Database of runs: a file, or mongodb://..."""

    no_check: bool
    """Start without trying the server on a few training rows, or looking up the reflection model."""

    ignore_findings: Sequence[Literal["evaluate", "scores", "reflective_dataset"]]
    """Step of the check that only warns: evaluate, scores, reflective_dataset; repeatable."""

    lease_s: float
    """Seconds without a heartbeat after which another process may resume the run."""

    finalize_timeout_s: float
    """Seconds that the program's `finalize` may take."""


class ServerSettings(TypedDict, total=False):
    """Settings of `gepa-server`."""

    adapter: str | None
    """GEPAAdapter class, or a function that makes one."""

    command: Sequence[str] | str | None
    """Command that speaks the protocol over stdio; all that follows belongs to it."""

    seed_candidate: dict[str, str] | Path | str | None
    """Texts to begin with, as JSON or a JSON file; an adapter needs it."""

    python: Path | str | None
    """Interpreter that runs the program."""

    kind: Literal["program", "adapter", "command", "dspy"] | None
    """Kind of program; only dspy must be given."""

    name: str | None
    """Name of the program."""

    version: str | None
    """Version of the program; alone, print that of gepa-server and exit."""

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

    trainset_path: Path | str | None
    """Rows of the split `train`: .json, .jsonl or .csv."""

    valset_path: Path | str | None
    """Rows of the split `val`."""

    inputs: Sequence[str] | str | None
    """Field of the rows that the program is called with; repeatable. The metric gets all fields."""

    saved_program_json_path: Path | str | None
    """Saved program: read at the start, written by `finalize`."""

    proposer: Literal["gepa", "dspy"]
    """What proposes texts: the optimizer, or DSPy's own proposer (DSPy 3.2)."""

    reflection_lm: str | None
    """dspy.LM for the proposer dspy."""

    instruction_proposer: str | None
    """What proposes in place of DSPy's own, for the proposer dspy: its instruction_proposer."""

    field_descriptions: bool
    """Improve the fields' descriptions too."""

    demos: bool
    """Improve the predictors' demos too."""

    add_format_failure_as_feedback: bool
    """Reflect on answers that do not parse, as dspy.GEPA can."""

    warn_on_score_mismatch: bool
    """Have DSPy warn of a predictor's score that differs from the program's."""

    seed: int
    """Seed of the choice among a predictor's calls; dspy.GEPA's."""

    workers: int | None
    """Processes of the program."""

    example_timeout_s: float | None
    """Seconds that one example may run; inf for no limit."""

    max_concurrency: int | None
    """Examples at the same time, over all processes and commits."""

    threads: int | None
    """Examples at the same time in each process (--workers of them)."""

    thread_safe: bool
    """The adapter supports overlapping calls."""

    trust_results: bool
    """Score what the program returns, even if its last call of a model failed."""

    model_hosts: Sequence[str] | str
    """Host of a model that is not known by its requests, with or without a port; repeatable."""

    logs: bool
    """Print what the program writes, each example's as it ends."""

    start_timeout_s: float
    """Seconds that the program may take to start."""

    call_timeout_s: float
    """Seconds for other calls: records, proposals, `finalize`."""

    datasets: dict[str, Path]
    """Rows to hold: a .json, .jsonl or .csv file per split; repeatable."""

    share_rows: bool
    """Return rows to clients, not only their ids."""

    max_batch_size: int
    """Examples in one call."""

    max_request_bytes: int
    """Bytes of one request."""

    max_batch_entries: int
    """Requests in one JSON-RPC array."""

    max_queue: int
    """Examples that wait besides those that run."""

    max_result_bytes: int
    """Bytes of one example's result."""

    max_trace_bytes: int
    """Bytes of trajectories kept."""

    max_answer_bytes: int
    """Bytes of answers kept."""

    abandon_after_s: float
    """Seconds that a call with a call_id runs without a request for its answer."""

    keep_answers_s: float
    """Seconds that an answer is kept after its last request."""

    drain_s: float
    """Seconds to finish in after SIGTERM."""
