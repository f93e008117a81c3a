"""Every setting of an optimisation run: all of GEPA's options by GEPA's own names, and ours."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from gepa_client.evolution import Evolve
from gepa_client.evolution.template import missing_marks
from gepa_client.settings.group import Group, NumberOrText, PositiveFloat, PositiveInt, Texts
from gepa_client.settings.notation import SAMPLING, SELECTION, parse_stopper, sampling_of
from gepa_client.settings.paths import rooted
from gepa_client.settings.sandbox_settings import SANDBOX_ONLY, SandboxSettings, contradiction
from gepa_client.settings.secrets import without_secrets

REPLACED: dict[str, str] = {
    "seed_candidate": "the server's `discover` states it",
    "adapter": "the server at `url` stands in its place",
    "task_lm": "the program behind the server chooses its own model",
    "evaluator": "the program behind the server scores its own outputs",
    "custom_candidate_proposer": "GEPA calls it serially; `reflection` runs proposals at the same time and in order",
    "reflection_strategy": "`reflection` and `reflection_lm` build it",
    "run_dir": "GEPA keeps pickled state there and pays for the seed again; `output` holds readable files",
    "wandb_attach_existing": "the optimizer is a process of its own, in which no other run is active",
    "mlflow_attach_existing": "the optimizer is a process of its own, in which no other run is active",
    "use_cloudpickle": "nothing is pickled",
    "logger": "GEPA's log goes to `run.log` in `output`",
    "callbacks": "the events of the run come from them; `--json` prints those",
    "display_progress_bar": "the live display stands in its place",
}
"""Parameters of `gepa.optimize` that are not settings here, each with the reason."""


NOBODY_PROPOSES = (
    "nobody proposes new texts: this program does not (no capability `proposals`), so give --reflection-lm MODEL"
)


class ServerSettings(Group):
    """The servers: at least one, by its URL or in a fleet file, or in sandboxes that are started from a `repo`."""

    url: Texts = Field(
        (), description="The servers, for instance http://127.0.0.1:8000 (`/rpc` may be left out): a text or several."
    )
    fleet: Path | None = Field(
        None, description="File of further servers, one per line, read again when it changes: URL [token-file=PATH]."
    )
    token_file: Path | None = Field(
        None, description="File that holds the token of every server in `url`; without it GEPA_TOKEN is read."
    )
    allow_insecure: bool = Field(False, description="Allow plain http to other machines.")
    allow_mixed_programs: bool = Field(
        False, description="Let servers work together whose programs have different names but the same components."
    )
    max_attempts: PositiveInt = Field(5, description="Times one example is tried when the infrastructure fails.")
    max_outage_s: PositiveFloat = Field(
        600.0, description="Seconds without any server that answers, after which the run is paused."
    )
    score_with: Texts = Field(
        (), description="A server that scores what the program's leaves unscored; may be given again."
    )
    score_token_file: Path | None = Field(
        None, description="File that holds the token of every server in `score_with`; without it GEPA_TOKEN is read."
    )


class RowSettings(Group):
    """Rows: files (.json, .jsonl, .csv) or names of splits the server holds."""

    trainset: str | None = Field(None, description="Rows to learn from; without it the server's split `train`.")
    valset: str | None = Field(None, description="Rows to select by; without it the server's `val`, else `trainset`.")
    testset: str | None = Field(
        None, description="Rows scored only at the end, seed and best; without it the server's `test`, if it has one."
    )
    failure_score: float = Field(0.0, description="Score of an example on which the program fails or times out.")


class BudgetSettings(Group):
    """When to stop: at least one of these."""

    max_metric_calls: PositiveInt | None = Field(None, description="Examples evaluated in all, checked per iteration.")
    auto: Literal["light", "medium", "heavy"] | None = Field(
        None, description="`max_metric_calls` by the formula of `dspy.GEPA(auto=...)`, from the rows and the texts."
    )
    max_full_evals: PositiveInt | None = Field(
        None, description="`max_metric_calls` as so many evaluations of all training and validation rows."
    )
    max_cost_usd: PositiveFloat | None = Field(
        None, description="US dollars spent in all, as far as servers and models say what they cost."
    )
    max_reflection_cost: PositiveFloat | None = Field(None, description="US dollars spent on the reflection model.")
    max_seconds: PositiveFloat | None = Field(
        None, description="Seconds at work; time in which the run is paused does not count."
    )
    patience: PositiveInt | None = Field(None, description="Iterations in a row without a better candidate.")
    target_score: float | None = Field(None, description="Score on the validation rows that is good enough.")
    stop_callbacks: tuple[str, ...] = Field(
        (),
        description="Any of timeout:SECONDS, no_improvement:ITERATIONS, score_threshold:SCORE, "
        "max_tracked_candidates:N, max_candidate_proposals:N, file:PATH; may be given again.",
    )
    max_failed_iterations: PositiveInt = Field(
        5, description="End the run when this many iterations in a row fail, with the first cause."
    )
    failure_stop: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="Pause the run when more than this share of the last 50 examples fail in the program (default 0.5, "
        "or never where code evolves, which may mend it).",
    )


class ReflectionSettings(Group):
    """Reflection: who proposes new texts."""

    reflection: Literal["program", "model"] | None = Field(
        None, description="Who proposes: the program behind the server, or `reflection_lm`; by default what is there."
    )
    reflection_lm: str | None = Field(None, description="Model that proposes, by litellm's name: openai/gpt-5.")
    reflection_lm_kwargs: dict[str, Any] | None = Field(
        None, description="Arguments of every call to it (temperature, api_base, ...), as a JSON object."
    )
    reflection_prompt_template: str | dict[str, str] | None = Field(
        None,
        description="Prompt with <curr_param> and <side_info>: text, @file, or a JSON object of these per component.",
    )
    reflection_minibatch_size: PositiveInt | None = Field(
        None, description="Examples per reflection (GEPA's default 3)."
    )
    batch_sampler: Literal["epoch_shuffled"] = Field("epoch_shuffled", description="How minibatches are drawn.")
    skip_perfect_score: bool = Field(True, description="Do not reflect on a minibatch whose scores are all perfect.")
    perfect_score: float = Field(1.0, description="The score that is perfect.")
    reflection_workers: PositiveInt = Field(20, description="Requests to the reflection model at once.")
    reflection_per_minute: PositiveFloat | None = Field(
        None, description="Requests to the reflection model per minute, evenly spaced, repeated ones included."
    )
    module_selector: Literal["round_robin", "all"] = Field("round_robin", description="Components changed at once.")


class CodeSettings(Group):
    """Code: whether the program's code evolves too, and when."""

    evolve: Evolve | None = Field(
        None, description="What is changed; by default both where the server changes code, else the prompts."
    )
    prompts_per_code: PositiveInt | None = Field(
        None,
        description="Prompt steps after each code step; without it `module_selector` decides, code among the rest.",
    )
    decay_factor: Annotated[float, Field(ge=1)] | None = Field(
        None, description="What `prompts_per_code` is multiplied by every `decay_every` iterations."
    )
    decay_every: PositiveInt | None = Field(None, description="Iterations after which code becomes rarer.")
    code_until: PositiveInt | None = Field(None, description="The last iteration in which code is changed.")
    code_prompt_template: str | None = Field(
        None, description="Prompt for change requests with <outline>, <side_info> and <lineage>: text or @file."
    )
    mutation_timeout_s: PositiveFloat = Field(
        3600.0, description="Seconds one change of code may take, its checks included, until it is asked for again."
    )


class SearchSettings(Group):
    """Search: which candidates are tried and kept."""

    candidate_selection_strategy: Literal["pareto", "current_best", "epsilon_greedy", "top_k_pareto"] = Field(
        "pareto", description="Which candidate is improved next."
    )
    frontier_type: Literal["instance", "objective", "hybrid", "cartesian"] = Field(
        "instance", description="What the Pareto front is kept over; all but `instance` need objective scores."
    )
    proposals: NumberOrText | None = Field(
        None,
        description="Proposals per iteration: P from P parents, or PxN from P parents with N each; "
        "short for `sampling_strategy`.",
    )
    sampling_strategy: str = Field(
        "single", description="Proposals per iteration: single, same_parent:N, independent:N or pxn:PxN."
    )
    selection_strategy: str = Field("all", description="Improving proposals kept per iteration: all, best or top_k:K.")
    acceptance_criterion: Literal["strict_improvement", "improvement_or_equal"] = Field(
        "strict_improvement", description="When a proposal counts as improving on its minibatch."
    )
    val_evaluation_policy: Literal["full_eval"] = Field(
        "full_eval", description="Validation rows scored per candidate."
    )
    cache_evaluation: bool = Field(False, description="Score a candidate on the same row only once.")
    track_best_outputs: bool = Field(True, description="Keep the best outputs on the validation rows.")
    use_merge: bool = Field(False, description="Also merge candidates that are good at different rows.")
    max_merge_invocations: Annotated[int, Field(ge=0)] = Field(5, description="Merges tried in all.")
    merge_val_overlap_floor: PositiveInt = Field(5, description="Validation rows two merged candidates must share.")
    seed: int = Field(0, description="Seed of every random choice.")
    raise_on_exception: bool = Field(True, description="End the run at the first exception of an iteration.")


class TrackingSettings(Group):
    """Experiment trackers."""

    use_wandb: bool = Field(False, description="Log to Weights & Biases (must be installed).")
    wandb_api_key: str | None = Field(None, description="Its key: @file on the command line, or WANDB_API_KEY.")
    wandb_init_kwargs: dict[str, Any] | None = Field(None, description="Arguments of wandb.init, as a JSON object.")
    use_mlflow: bool = Field(False, description="Log to MLflow (must be installed).")
    mlflow_tracking_uri: str | None = Field(None, description="Where MLflow keeps its runs.")
    mlflow_experiment_name: str | None = Field(None, description="The experiment to log to.")
    tracking_key_prefix: str = Field("", description="Put before every metric's name.")


class OutputSettings(Group):
    """Output."""

    name: str | None = Field(None, description="The run's name, put before its last line and into its folder's name.")
    output: Path | None = Field(None, description="Folder for the results, new or empty (default runs/TIME-NAME).")
    store: str | None = Field(
        None,
        description="Where runs are kept: a file, or mongodb://...; without it GEPA_STORE, else runs/evolverpc.db.",
    )
    lease_s: PositiveFloat = Field(
        10.0, description="Seconds without a sign of life after which another process may take the run over."
    )
    finalize_timeout_s: PositiveFloat = Field(
        60.0, description="Seconds the program may take when it is told of the best candidate."
    )
    no_check: bool = Field(False, description="Start without trying the server on a few training rows first.")
    ignore_findings: tuple[Literal["evaluate", "scores", "reflective_dataset"], ...] = Field(
        (),
        description="A step of the check (evaluate, scores, reflective_dataset) that only warns if it fails; may be "
        "given again.",
    )


GROUPS: tuple[type[Group], ...] = (
    ServerSettings,
    SandboxSettings,
    RowSettings,
    BudgetSettings,
    ReflectionSettings,
    CodeSettings,
    SearchSettings,
    TrackingSettings,
    OutputSettings,
)

DEPENDS: dict[str, tuple[str, ...]] = {
    "use_wandb": ("wandb_api_key", "wandb_init_kwargs"),
    "use_mlflow": ("mlflow_tracking_uri", "mlflow_experiment_name"),
    "use_merge": ("max_merge_invocations", "merge_val_overlap_floor"),
    "prompts_per_code": ("decay_factor", "decay_every"),
    "decay_factor": ("decay_every",),
    "decay_every": ("decay_factor",),
    "repo": SANDBOX_ONLY,
}
"""Settings that mean something only where another one is on."""

MODEL_ONLY = ("reflection_lm_kwargs", "reflection_prompt_template", "max_reflection_cost", "reflection_per_minute")
"""Settings that mean something only with a `reflection_lm`."""


CODE_ONLY = (
    *("prompts_per_code", "decay_factor", "decay_every", "code_until", "code_prompt_template"),
    "mutation_timeout_s",
)
"""Settings that mean something only where code is changed."""

BESIDE_PROMPTS = ("prompts_per_code", "code_until")
"""Settings that share the steps out between code and prompts."""

CALL_BUDGETS = ("max_metric_calls", "auto", "max_full_evals")
"""Settings each of which limits the metric calls; at most one of them is given."""

ENDINGS = (*CALL_BUDGETS, "max_cost_usd", "max_reflection_cost", "max_seconds", "patience", "target_score")
"""Settings each of which ends a run, as `stop_callbacks` does."""


class RunConfig(
    OutputSettings,
    TrackingSettings,
    SearchSettings,
    CodeSettings,
    ReflectionSettings,
    BudgetSettings,
    RowSettings,
    SandboxSettings,
    ServerSettings,
):
    """One run. Every key of a configuration file, and every flag of `gepa-client optimize`, is a field of this."""

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        self._names_servers()
        if len(budgets := [name for name in CALL_BUDGETS if getattr(self, name) is not None]) > 1:
            raise ValueError(f"{' and '.join(budgets)} all limit the metric calls: give one of them")
        if self.proposals is not None and "sampling_strategy" in self.model_fields_set:
            raise ValueError("proposals and sampling_strategy say the same thing: leave one of them out")
        if self.proposals is not None:
            sampling_of(self.proposals)
        if not SAMPLING.fullmatch(self.sampling_strategy):
            raise ValueError("sampling_strategy: give single, same_parent:N, independent:N or pxn:PxN, such as pxn:2x4")
        if not SELECTION.fullmatch(self.selection_strategy):
            raise ValueError("selection_strategy: give all, best or top_k:K, such as top_k:2")
        for stopper in self.stop_callbacks:
            parse_stopper(stopper)
        if self.reflection == "program" and self.reflection_lm is not None:
            raise ValueError("reflection is `program`, so reflection_lm would not be used: leave one of them out")
        if self.reflection == "model" and self.reflection_lm is None:
            raise ValueError("reflection is `model`, so reflection_lm must name one")
        if self.reflection_lm is None:
            for unused in MODEL_ONLY:
                if getattr(self, unused) is not None:
                    raise ValueError(f"{unused} is for a reflection model, and no reflection_lm is given")
        for template in self._templates():
            missing = [mark for mark in ("<curr_param>", "<side_info>") if mark not in template]
            if missing:
                raise ValueError(f"reflection_prompt_template: a template lacks {' and '.join(missing)}")
        self._evolves()
        for used, keys in DEPENDS.items():
            for key in keys:
                if key in self.model_fields_set and getattr(self, key) and not getattr(self, used):
                    raise ValueError(f"{key} is given but {used} is not, so it would not be used")
        return self

    @property
    def ends(self) -> bool:
        """Whether anything says when to stop."""
        return bool(self.stop_callbacks) or any(getattr(self, budget) is not None for budget in ENDINGS)

    @property
    def ends_by_money_alone(self) -> bool:
        """Whether limits on cost are the only ones."""
        money = ("max_cost_usd", "max_reflection_cost")
        others = [getattr(self, budget) for budget in ENDINGS if budget not in money]
        return self.ends and not self.stop_callbacks and not any(other is not None for other in others)

    @property
    def sampling(self) -> str:
        """How proposals are sampled, in the words of `sampling_strategy`, whichever setting says it."""
        return self.sampling_strategy if self.proposals is None else sampling_of(self.proposals)

    def _names_servers(self) -> None:
        if not self.url and self.fleet is None and self.repo is None:
            raise ValueError("url, fleet, repo: none is given, so there is no server")
        if self.url and self.repo is not None:
            raise ValueError("url and repo are given: servers that run, or a repository to start them from, not both")
        if self.repo is not None and (impossible := contradiction(self)):
            raise ValueError(impossible)
        for key, urls in (("url", self.url), ("score_with", self.score_with)):
            bare = [url.rstrip("/").removesuffix("/rpc") for url in urls]
            twice = [url for at, url in enumerate(urls) if bare[at] in bare[:at]]
            if twice:
                raise ValueError(f"{key}: {twice[0]} is given twice")
        if self.token_file is not None and not self.url:
            raise ValueError("token_file is for the servers of `url`, and none is given; a fleet file names its own")
        if self.score_token_file is not None and not self.score_with:
            raise ValueError("score_token_file is given but score_with is not, so it would not be used")

    def _evolves(self) -> None:
        if self.code_prompt_template is not None and (missing := missing_marks(self.code_prompt_template)):
            raise ValueError(f"code_prompt_template: the template lacks {' and '.join(missing)}")
        if self.evolve == "prompts" and (unheeded := self.given(CODE_ONLY)):
            raise ValueError(f"{unheeded} is given, but evolve is `prompts`, so it would not be used")
        if self.evolve == "code" and (unheeded := self.given(BESIDE_PROMPTS)):
            raise ValueError(f"{unheeded} is given, but evolve is `code`, so there are no prompts to change instead")
        if self.evolve == "code" and self.module_selector == "all":
            raise ValueError("module_selector is `all`, but evolve is `code`, which is one component")

    def given(self, names: tuple[str, ...]) -> str | None:
        """The first of these settings that was given a value."""
        said = [name for name in names if name in self.model_fields_set]
        return next((name for name in said if getattr(self, name) is not None), None)

    def _templates(self) -> list[str]:
        given = self.reflection_prompt_template
        return [] if given is None else list(given.values()) if isinstance(given, dict) else [given]

    def recorded(self) -> dict[str, Any]:
        """The settings as JSON for the run's own record: whatever may be a secret left out, paths absolute.

        With a `repo` the fleet file is that of this process's sandboxes, which nobody finds again.
        """
        values = rooted(self.model_dump(mode="json"), Path.cwd())
        if self.repo is not None:
            values["fleet"] = None
        return {key: without_secrets(key, value) for key, value in values.items()}
