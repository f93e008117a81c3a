"""Every setting of an optimisation run: all of GEPA's options by GEPA's own names, and ours."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

PositiveInt = Annotated[int, Field(ge=1)]

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


class _Group(BaseModel):
    """Settings that belong together, in the order of `--help`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ServerSettings(_Group):
    """The server."""

    url: str = Field(description="The server, for instance http://127.0.0.1:8000 (`/rpc` may be left out).")
    token_file: Path | None = Field(None, description="File that holds the token; without it GEPA_TOKEN is read.")
    allow_insecure: bool = Field(False, description="Allow plain http to other machines.")
    max_attempts: PositiveInt = Field(5, description="Times one example is tried when the infrastructure fails.")


class RowSettings(_Group):
    """Rows: files (.json, .jsonl, .csv) or names of splits the server holds."""

    trainset: str | None = Field(None, description="Rows to learn from; without it the server's split `train`.")
    valset: str | None = Field(None, description="Rows to select by; without it the server's `val`, else `trainset`.")
    testset: str | None = Field(
        None, description="Rows scored only at the end, seed and best; without it the server's `test`, if it has one."
    )
    failure_score: float = Field(0.0, description="Score of an example on which the program fails or times out.")


class BudgetSettings(_Group):
    """When to stop: at least one of these."""

    max_metric_calls: PositiveInt | None = Field(None, description="Examples evaluated in all, checked per iteration.")
    max_reflection_cost: Annotated[float, Field(gt=0)] | None = Field(
        None, description="US dollars spent on the reflection model."
    )
    stop_callbacks: tuple[str, ...] = Field(
        (),
        description="Any of timeout:SECONDS, no_improvement:ITERATIONS, score_threshold:SCORE, "
        "max_tracked_candidates:N, max_candidate_proposals:N, file:PATH; may be given again.",
    )
    max_failed_iterations: PositiveInt = Field(
        5, description="End the run when this many iterations in a row fail, with the first cause."
    )


class ReflectionSettings(_Group):
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
    module_selector: Literal["round_robin", "all"] = Field("round_robin", description="Components changed at once.")


class SearchSettings(_Group):
    """Search: which candidates are tried and kept."""

    candidate_selection_strategy: Literal["pareto", "current_best", "epsilon_greedy", "top_k_pareto"] = Field(
        "pareto", description="Which candidate is improved next."
    )
    frontier_type: Literal["instance", "objective", "hybrid", "cartesian"] = Field(
        "instance", description="What the Pareto front is kept over; all but `instance` need objective scores."
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


class TrackingSettings(_Group):
    """Experiment trackers."""

    use_wandb: bool = Field(False, description="Log to Weights & Biases (must be installed).")
    wandb_api_key: str | None = Field(None, description="Its key: @file on the command line, or WANDB_API_KEY.")
    wandb_init_kwargs: dict[str, Any] | None = Field(None, description="Arguments of wandb.init, as a JSON object.")
    use_mlflow: bool = Field(False, description="Log to MLflow (must be installed).")
    mlflow_tracking_uri: str | None = Field(None, description="Where MLflow keeps its runs.")
    mlflow_experiment_name: str | None = Field(None, description="The experiment to log to.")
    tracking_key_prefix: str = Field("", description="Put before every metric's name.")


class OutputSettings(_Group):
    """Output."""

    name: str | None = Field(None, description="The run's name, put before its last line and into its folder's name.")
    output: Path | None = Field(None, description="Folder for the results, new or empty (default runs/TIME-NAME).")
    finalize_timeout_s: Annotated[float, Field(gt=0)] = Field(
        60.0, description="Seconds the program may take when it is told of the best candidate."
    )
    no_check: bool = Field(False, description="Start without trying the server on a few training rows first.")


GROUPS: tuple[type[_Group], ...] = (
    ServerSettings,
    RowSettings,
    BudgetSettings,
    ReflectionSettings,
    SearchSettings,
    TrackingSettings,
    OutputSettings,
)

SAMPLING = re.compile(r"single|(same_parent|independent):([1-9]\d*)|pxn:([1-9]\d*)x([1-9]\d*)")
SELECTION = re.compile(r"all|best|top_k:([1-9]\d*)")
STOPPERS: dict[str, type[int] | type[float] | type[str]] = {
    "timeout": float,
    "no_improvement": int,
    "score_threshold": float,
    "max_tracked_candidates": int,
    "max_candidate_proposals": int,
    "file": str,
}


class RunConfig(
    OutputSettings, TrackingSettings, SearchSettings, ReflectionSettings, BudgetSettings, RowSettings, ServerSettings
):
    """One run. Every key of a configuration file, and every flag of `gepa-client optimize`, is a field of this."""

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
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
            for unused in ("reflection_lm_kwargs", "reflection_prompt_template", "max_reflection_cost"):
                if getattr(self, unused) is not None:
                    raise ValueError(f"{unused} is for a reflection model, and no reflection_lm is given")
        for template in self._templates():
            missing = [mark for mark in ("<curr_param>", "<side_info>") if mark not in template]
            if missing:
                raise ValueError(f"reflection_prompt_template: a template lacks {' and '.join(missing)}")
        for used, keys in (
            ("use_wandb", ("wandb_api_key", "wandb_init_kwargs")),
            ("use_mlflow", ("mlflow_tracking_uri", "mlflow_experiment_name")),
            ("use_merge", ("max_merge_invocations", "merge_val_overlap_floor")),
        ):
            for key in keys:
                if key in self.model_fields_set and getattr(self, key) and not getattr(self, used):
                    raise ValueError(f"{key} is given but {used} is not, so it would not be used")
        return self

    @property
    def ends(self) -> bool:
        """Whether anything says when to stop."""
        return bool(self.max_metric_calls or self.max_reflection_cost or self.stop_callbacks)

    def _templates(self) -> list[str]:
        given = self.reflection_prompt_template
        return [] if given is None else list(given.values()) if isinstance(given, dict) else [given]

    def recorded(self) -> dict[str, Any]:
        """The settings as JSON for the run's own record, with whatever may be a secret left out."""
        return {key: without_secrets(key, value) for key, value in self.model_dump(mode="json").items()}


def parse_stopper(text: str) -> tuple[str, int | float | str]:
    """`timeout:60` -> `("timeout", 60.0)`.

    Raises:
        ValueError: no such stopper, or its value is not of its kind.
    """
    kind, separator, value = text.partition(":")
    read = STOPPERS.get(kind)
    if read is None or not separator or not value:
        raise ValueError(f"stop_callbacks: {text!r} is not one of {', '.join(f'{name}:VALUE' for name in STOPPERS)}")
    try:
        parsed = read(value)
    except ValueError as error:
        raise ValueError(f"stop_callbacks: {text!r} needs a number after the colon") from error
    if kind not in ("file", "score_threshold") and not (isinstance(parsed, int | float) and 0 < parsed < 2**53):
        raise ValueError(f"stop_callbacks: {text!r} needs a number above 0")
    if isinstance(parsed, float) and parsed != parsed:
        raise ValueError(f"stop_callbacks: {text!r} needs a number")
    return kind, parsed


_SECRET = re.compile(r"key|token|secret|password|credential|authorization", re.IGNORECASE)
_NOT_SECRET = frozenset({"token_file", "tracking_key_prefix", "max_tokens", "max_completion_tokens"})


def without_secrets(key: str, value: Any) -> Any:
    """`value`, the setting of name `key`, with whatever may be a secret in it left out."""
    if isinstance(value, dict):
        return {inner: without_secrets(str(inner), part) for inner, part in value.items()}
    if isinstance(value, list):
        return [without_secrets(key, part) for part in value]
    if value is not None and _SECRET.search(key) and key not in _NOT_SECRET:
        return "(not recorded)"
    return value
