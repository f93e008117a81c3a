"""The settings of one run: all groups together, the rules between settings of several groups, and those of a check."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import model_validator

from evolverpc_common.display_text import shell_line
from evolverpc_common.settings.definition import anchored, settings_of
from gepa_client.settings.run_settings import (
    BUILDS_IN_SANDBOX,
    LEAST_RACE_ROWS,
    RACE_ROWS,
    RECORDED_ROWS,
    BudgetSettings,
    CodeSettings,
    DatasetSettings,
    FleetSettings,
    OutputSettings,
    ReflectionSettings,
    SandboxSettings,
    SearchSettings,
    TrackingSettings,
    parse_secret_header,
)
from gepa_client.settings.secret_settings import without_secrets
from protocol.code import GIT_BRANCH

ENDINGS = {name: each.limit for name, each in settings_of(BudgetSettings).items() if each.limit is not None}
"""How settings end a run, by the setting."""

REPLACED: dict[str, str] = {
    "seed_candidate": "the server's `discover` returns it",
    "adapter": "the server at `url` takes its place",
    "task_lm": "the program behind the server chooses its own model",
    "evaluator": "the program behind the server scores its own outputs",
    "custom_candidate_proposer": "GEPA calls it serially; reflection here runs proposals at the same time and in order",
    "reflection_strategy": "`reflection_lm` makes it",
    "sampling_strategy": "`proposals` takes its values",
    "stop_callbacks": f"each has its own setting: {', '.join(ENDINGS)}",
    "run_dir": "GEPA keeps pickled state there and evaluates the seed again; `output` holds readable files",
    "use_wandb": "`tracking` is wandb",
    "use_mlflow": "`tracking` is mlflow",
    "wandb_api_key": "set WANDB_API_KEY in the environment",
    "wandb_init_kwargs": "set wandb's own variables, such as WANDB_PROJECT",
    "mlflow_tracking_uri": "set MLFLOW_TRACKING_URI in the environment",
    "mlflow_experiment_name": "set MLFLOW_EXPERIMENT_NAME in the environment",
    "tracking_key_prefix": "metrics have GEPA's names",
    "wandb_attach_existing": "the optimizer is a process of its own, in which no other run is active",
    "mlflow_attach_existing": "the optimizer is a process of its own, in which no other run is active",
    "use_cloudpickle": "nothing is pickled",
    "logger": "GEPA's log is written to `run.log` in `output`",
    "callbacks": "the events of the run replace them; `--json` prints those",
    "display_progress_bar": "the live display takes its place",
    "max_reflection_cost": "`max_cost_usd` limits the cost of reflection and of the program together",
    "raise_on_exception": "a failed iteration is reported, and 5 in a row end the run",
    "batch_sampler": "minibatches are drawn as `epoch_shuffled` does",
    "val_evaluation_policy": "each candidate is scored on all rows of the search; `validation` has races",
    "track_best_outputs": "the best outputs are always kept",
    "max_merge_invocations": "at most 5 merges are tried",
    "merge_val_overlap_floor": "merged candidates share at least 5 validation rows",
}
"""Parameters of `gepa.optimize` that are no settings here, each with the reason."""

NO_PROPOSER = (
    f"nothing proposes new texts: give `reflection_lm` (without a key: `{shell_line(['demo-model'])}`, then "
    "openai/demo), or `propose` in a call of `optimize`, or write `propose_new_texts(candidate, reflective_dataset, "
    "components)` in the program, which returns new texts by component (`proposeNewTexts` in TypeScript; capability "
    "`proposals`)"
)

SANDBOX_ONLY = tuple(name for name in SandboxSettings.model_fields if name not in ("repo", "model_prices"))
"""Settings that need a `repo`."""

DEPENDS: dict[str, tuple[str, ...]] = {
    "repo": SANDBOX_ONLY,
    "reflection_lm": (
        *("reflection_lm_kwargs", "reflection_prompt_template"),
        *("reflection_per_minute", "reflection_prompt_tokens"),
    ),
}
"""Settings that need another one, by that other one."""

CALL_BUDGETS = ("max_metric_calls", "auto")
"""Settings each of which limits the metric calls; at most one of them is given."""

ALTERNATIVES: dict[str, tuple[str, ...]] = {
    "url": ("fleet", "repo", *SANDBOX_ONLY),
    "fleet": ("url", "token_file", "repo", *SANDBOX_ONLY),
    "repo": ("url", "fleet", "token_file"),
    "valset": ("val_fraction",),
    "val_fraction": ("valset",),
    "testset": ("test_fraction",),
    "test_fraction": ("testset",),
    **{name: tuple(other for other in CALL_BUDGETS if other != name) for name in CALL_BUDGETS},
}
"""What a setting replaces in sources of lower precedence, besides the setting of its own name."""

MODAL_ONLY = ("gateway", "modal_app")

PROPOSALS = re.compile(r"([1-9]\d*)(?:x([1-9]\d*))?")
VALIDATION = re.compile(r"full|race(?::(\d+)(?::(\d+))?)?")


def validation_rows(text: str) -> tuple[int | None, int | None]:
    """Return how many validation rows are sampled, and how many others compare the best one; None where undecided."""
    match = VALIDATION.fullmatch(text)
    sample, others = match.groups() if match is not None else (None, None)
    return (None if sample is None else int(sample), None if others is None else int(others))


TEXT_MARKS = ("<curr_param>", "<side_info>")
CODE_MARKS = ("<outline>", "<side_info>", "<lineage>")
"""What a prompt for a text, and one for code, has."""

GATEWAY = re.compile(r"([1-9]\d{0,4})=(https?://\S+)")
ENGINE = re.compile(r"auto|ray://(\[[\da-fA-F:]+\]|[^\s/:@\[\]]+):\d{1,5}")
SELECTION = re.compile(r"all|best|top_k:([1-9]\d*)")


def score_range_of(config: Mapping[str, Any]) -> tuple[float, float]:
    """Return the lowest and the highest score that there can be, by the settings of a run as they are recorded."""
    lowest, highest = config.get("score_range") or (0.0, config.get("perfect_score", 1.0))
    return float(lowest), float(highest)


class RunConfig(
    OutputSettings,
    TrackingSettings,
    SandboxSettings,
    CodeSettings,
    FleetSettings,
    SearchSettings,
    ReflectionSettings,
    BudgetSettings,
    DatasetSettings,
):
    """One run. Every key of a configuration file, and every flag of `evolverpc optimize`, is a field of this."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_servers()
        if self.repo is not None:
            self._check_sandboxes(self.repo)
        if len(budgets := [f"`{name}`" for name in CALL_BUDGETS if getattr(self, name) is not None]) > 1:
            raise ValueError(f"{' and '.join(budgets)} all limit the metric calls: give one of them")
        if self.val_fraction and self.valset is not None:
            raise ValueError("`val_fraction` and `valset` are given: validation rows, or a share of the training rows")
        if self.test_fraction and self.testset is not None:
            raise ValueError("`test_fraction` and `testset` are given: test rows, or a share of the training rows")
        if not PROPOSALS.fullmatch(self.proposals):
            raise ValueError("`proposals`: give P or PxN, such as 4 or 2x4, with whole numbers above 0")
        if not SELECTION.fullmatch(self.selection_strategy):
            raise ValueError("`selection_strategy`: give all, best or top_k:K, such as top_k:2")
        templates = self.reflection_prompt_template or {}
        for name, template in templates.items() if isinstance(templates, dict) else [("", templates)]:
            _check_marks(template, CODE_MARKS if name == GIT_BRANCH else TEXT_MARKS)
        self._check_code()
        if not VALIDATION.fullmatch(self.validation):
            raise ValueError("`validation`: give full, race, or race with numbers of rows, such as race:40:75")
        if self.race_rows is not None and self.race_rows < LEAST_RACE_ROWS:
            raise ValueError(
                f"`validation` races on {self.race_rows} rows: the best of many candidates on so few is chance; give "
                f"race:{LEAST_RACE_ROWS} or more"
            )
        for needed, names in DEPENDS.items():
            for name in names:
                unused = name in self.model_fields_set and getattr(self, name) not in (None, False, (), "")
                if unused and not getattr(self, needed):
                    raise ValueError(f"`{name}` needs `{needed}`, which is not given")
        return self

    def _check_servers(self) -> None:
        if not self.url and self.fleet is None and self.repo is None:
            raise ValueError("`url`, `fleet`, `repo`: none is given, so there is no server")
        if self.url and self.repo is not None:
            raise ValueError("`url` and `repo` are given: give running servers, or a repository to start them from")
        for key, urls in (("url", self.url), ("score_with", self.score_with)):
            bare = [url.partition(" ")[0].rstrip("/").removesuffix("/rpc") for url in urls]
            for at, url in enumerate(urls):
                if bare[at] in bare[:at]:
                    raise ValueError(f"`{key}`: {url} is given twice")
        if self.token_file is not None and not self.url:
            raise ValueError("`token_file` is for the servers of `url`, and none is given; a fleet file names its own")

    def _check_sandboxes(self, repo: str) -> None:
        parts = urlsplit(repo) if "://" in repo else None
        if parts is not None and (parts.password is not None or (parts.username is not None and parts.scheme != "ssh")):
            raise ValueError("`repo`: a token in a URL can be read by others: give it as `git_token_file`")
        if self.sandbox == "process" and self.allow_hosts not in ((), ("*",)):
            raise ValueError("`allow_hosts`: the sandbox `process` cannot limit hosts: leave it out")
        if self.sandbox not in BUILDS_IN_SANDBOX and "build_hosts" in self.model_fields_set:
            kinds = " and ".join(sorted(BUILDS_IN_SANDBOX))
            raise ValueError(f"`build_hosts` is for {kinds}, which build in a sandbox, not for {self.sandbox}")
        if self.sandbox == "process" and "sandbox_cpu" in self.model_fields_set:
            raise ValueError("`sandbox_cpu`: the sandbox `process` cannot limit cores: leave it out")
        if self.sandbox == "modal" and self.engine is not None:
            raise ValueError("`engine`: sandboxes of `modal` run at Modal: give another `sandbox`, or no engine")
        if self.engine is not None and not ENGINE.fullmatch(self.engine):
            raise ValueError("`engine`: give ray://HOST:PORT of a Ray cluster, or auto on one of its nodes")
        if self.sandbox != "modal" and (name := self.given(MODAL_ONLY)):
            raise ValueError(f"`{name}` is for Modal, not for {self.sandbox}")
        if self.gateway is not None and not 0 < self.gateway_ports[0] < 2**16:
            raise ValueError("`gateway`: give PORT=URL, such as 8080=https://models.example.org")
        if self.sandbox == "modal" and self.gateway is None:
            for name in ("models", "model_calls_per_minute", "model_providers"):
                if getattr(self, name):
                    raise ValueError(f"`{name}`: at Modal, models need a `gateway`")
            if self.secret_headers:
                raise ValueError("`secret_headers`: at Modal, they need a `gateway`")
        self._check_secret_headers()
        if "*" in self.allow_hosts and len(self.allow_hosts) > 1:
            raise ValueError("`allow_hosts`: * allows every host: leave the others out")

    def _check_secret_headers(self) -> None:
        for text in self.secret_headers:
            try:
                *_, variable = parse_secret_header(text)
            except ValueError as error:
                raise ValueError(f"`secret_headers`: {error}") from None
            if variable in self.pass_env:
                raise ValueError(f"`secret_headers`: `pass_env` hands {variable} to the program itself: leave one out")

    def _check_code(self) -> None:
        if self.evolve == "prompts" and self.code_template is not None:
            raise ValueError(f"`reflection_prompt_template` has a prompt for {GIT_BRANCH}, but `evolve` is prompts")
        if self.evolve == "code" and self.module_selector == "all":
            raise ValueError("`module_selector` is all, but `evolve` is code, which is one component")

    @property
    def ends(self) -> bool:
        """Whether any setting ends the run."""
        return any(getattr(self, name) is not None for name in ENDINGS)

    @property
    def ends_by_money_alone(self) -> bool:
        """Whether limits on cost are the only ones."""
        return self.ends and not any(getattr(self, name) is not None for name in ENDINGS if name != "max_cost_usd")

    @property
    def sampling(self) -> str:
        """The proposals as GEPA's strategy: `1` is `single`, `4` `independent:4`, `2x4` `pxn:2x4`."""
        if "x" in self.proposals:
            return f"pxn:{self.proposals}"
        return "single" if self.proposals == "1" else f"independent:{self.proposals}"

    @property
    def races(self) -> bool:
        """Whether proposals race on a sample of the validation rows."""
        return self.validation != "full"

    @property
    def race_rows(self) -> int | None:
        """How many validation rows are sampled for races; None if that is not decided."""
        return validation_rows(self.validation)[0]

    @property
    def race_final_rows(self) -> int | None:
        """How many other validation rows compare the best candidate with the seed; None if that is not decided."""
        return validation_rows(self.validation)[1]

    @property
    def sample(self) -> int:
        """How many validation rows the search scores candidates on; 0 for all of them."""
        if not self.races:
            return 0
        return RACE_ROWS if self.race_rows is None else self.race_rows

    def sampled_on(self, rows: int, others: int | None = None) -> str:
        """Return `validation` with numbers of rows: of the sample, if any, and of others that compare the best one."""
        return ":".join(map(str, ("race", rows, *(() if others is None else (others,))))) if self.races else "full"

    @property
    def sandbox_workspace_mb(self) -> int:
        """What each sandbox may write, in MiB: files are held in its memory, which they must not use up."""
        return min(1024, self.sandbox_memory_mb // 2)

    @property
    def code_template(self) -> str | None:
        """The prompt for change requests; None for the usual one."""
        templates = self.reflection_prompt_template
        return templates.get(GIT_BRANCH) if isinstance(templates, dict) else None

    @property
    def gateway_ports(self) -> tuple[int, str | None]:
        """The loopback port of the gateway to models, 0 for a free one, and the URL that leads there, if any."""
        match = GATEWAY.fullmatch(self.gateway or "")
        return (int(match[1]), match[2]) if match is not None else (0, None)

    def given(self, names: tuple[str, ...]) -> str | None:
        """Return the first of these settings that was given a value."""
        found = (name for name in names if name in self.model_fields_set and getattr(self, name) is not None)
        return next(found, None)

    def recorded(self) -> dict[str, Any]:
        """Return the settings as JSON for the run's record: without possible secrets, with absolute paths.

        With a `repo` the fleet file is that of this process's sandboxes, which exists only while they do. Rows that
        were given inline or over stdin are in the run's initial state.
        """
        values = self.model_dump(mode="json")
        texts = {name: values.pop(name) for name in TEMPLATES}  # they were read, so an @ in them is no file
        values = anchored(SETTINGS, values, Path.cwd()) | texts
        if self.repo is not None:
            values["fleet"] = None
        values |= {name: RECORDED_ROWS for name in ROW_SETTINGS if isinstance(values[name], list)}
        return {name: without_secrets(name, value) for name, value in values.items()}


SETTINGS = settings_of(RunConfig)
ROW_SETTINGS = ("trainset", "valset", "testset")
TEMPLATES = ("reflection_prompt_template",)


def _check_marks(template: str, marks: tuple[str, ...]) -> None:
    missing = [mark for mark in marks if mark not in template]
    if missing:
        raise ValueError(f"`reflection_prompt_template`: a template lacks {' and '.join(missing)}")


IDENTITY_SETTINGS = frozenset(
    {
        *("failure_score", "reflection_lm", "reflection_lm_kwargs", "reflection_prompt_template"),
        *("reflection_prompt_tokens", "reflection_images", "evolve"),
        *("reflection_minibatch_size", "skip_perfect_score", "perfect_score", "module_selector"),
        *("candidate_selection_strategy", "frontier_type", "proposals", "selection_strategy"),
        *("acceptance_criterion", "cache_evaluation", "use_merge", "seed"),
        *("max_component_tokens", "tie_rows", "validation", "deterministic"),
    }
)
"""Settings that belong to the fingerprint of a run: with another value a replay would make other requests."""

CHECK_SETTINGS = (
    *SandboxSettings.model_fields,
    *("fleet", "token_file", "allow_insecure", "allow_mixed_programs", "score_with"),
    *("concurrency", "example_timeout_s"),
    *("trainset", "valset", "testset", "val_fraction", "test_fraction", "max_metric_calls", "auto"),
    *(
        "reflection_lm",
        "reflection_lm_kwargs",
        "reflection_minibatch_size",
        "deterministic",
        "evolve",
        "perfect_score",
        "score_range",
    ),
)
"""The settings that `evolverpc check` has flags for."""

CHECKED_ROWS, MOST_CHECKED_ROWS = 15, 100
"""Rows that a check tries by default, and at most."""

CHECK_REPEATS, MOST_CHECK_REPEATS = 2, 20
"""How often `evolverpc check` evaluates each of them by default, and at most. Two show noise at the least cost."""
