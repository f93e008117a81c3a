"""Every setting of a run, group by group: default, type and description, for flags, files, variables and reference."""

import json
import re
import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from evolverpc_common.exact_values import with_integers_packed
from evolverpc_common.settings.definition import (
    Limit,
    SettingsGroup,
    constant,
    json_object,
    object_or_text,
    path_unless,
    setting,
)
from gepa_client.journal.steer_entries import LONGEST_S

PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
Usd = Annotated[float, Field(ge=0)]
Evolve = Literal["code", "prompts", "both"]
SandboxKind = Literal["bubblewrap", "docker", "process", "modal"]

BUILDS_IN_SANDBOX: frozenset[SandboxKind] = frozenset({"bubblewrap", "docker"})
"""Those whose builds of environments reach `build_hosts` alone."""

LARGEST_SCORE = 1e100
"""The largest size of a score: the sum of squares of larger ones may exceed what a float holds."""


def _comparable(score: float) -> float:
    if abs(score) > LARGEST_SCORE:
        raise ValueError(f"must be from {-LARGEST_SCORE:g} to {LARGEST_SCORE:g}")
    return score


Score = Annotated[float, AfterValidator(_comparable)]

GEPA_MINIBATCH = 3
"""Examples per reflection by GEPA's default."""

SUGGESTED_METRIC_CALLS = 1000
"""Metric calls of a run that nothing limits yet: in commands that are printed, and in the estimate of a check."""


def _ends(text: str) -> tuple[float, float]:
    """Return the two numbers of a text such as `-1,1`."""
    try:
        lowest, highest = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"give the lowest and the highest score, such as 0,100 (given: {text!r})") from None
    return lowest, highest


def _growing(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    if ends is not None and not ends[0] < ends[1]:
        raise ValueError("give the lowest score, then the highest one, such as 0,100")
    return ends


VAL_FRACTION, LEAST_TO_SPLIT = 0.2, 50
"""The default share of the training rows that is kept for validation, and the rows from which it holds: a candidate's
score over fewer than 10 validation rows is mostly chance."""

MUTATION_LIMIT_S = 3600.0
"""Seconds that one change of code may take, checks included."""

RACE_ROWS, LEAST_RACE_ROWS = 40, 10
"""The number of validation rows that a race samples: the default and the smallest; decision 0022 has others."""

ROW_SUFFIXES = (".json", ".jsonl", ".csv")
REGISTRIES = (
    *("pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "registry.yarnpkg.com", "nodejs.org"),
    *("github.com", "*.githubusercontent.com"),  # releases of Python
)


def is_file(rows: str) -> bool:
    """Return whether `rows` names a file rather than a split the server holds."""
    return rows.lower().endswith(ROW_SUFFIXES)


def is_remote(repo: str) -> bool:
    """Return whether it is a URL, or `user@host:path`, rather than a folder of this machine."""
    head, colon, _ = repo.partition(":")
    return "://" in repo or (bool(colon) and "@" in head and "/" not in head)


def _scorers(value: Any, folder: Path) -> Any:
    """Anchor the token files of lines such as `URL token-file=PATH` at a folder."""
    if isinstance(value, list | tuple):
        return [_scorers(line, folder) for line in value]
    return re.sub(r"(token-file=)(\S+)", lambda found: found[1] + str(folder / found[2]), value)


_rows_path = path_unless(lambda value: not is_file(value))
_repo = path_unless(is_remote)
_store = path_unless(lambda value: "://" in value)


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


MODEL_FORM = "write it as PROVIDER/MODEL, as in openai/gpt-5"
_MODEL = re.compile(r"[^\s/]+(/\S+)?")


def _model_or_none(value: Any) -> Any:
    if isinstance(value, str) and not _MODEL.fullmatch(value):
        raise ValueError(f"this names no model; {MODEL_FORM}")
    return None if value == "program" else value


_TEXTS_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
Texts = Annotated[tuple[str, ...], BeforeValidator(_as_tuple), WithJsonSchema(_TEXTS_SCHEMA)]
"""One text or several."""

STDIN = "-"
"""Takes the place of rows that are read from standard input."""

RECORDED_ROWS = "(rows in the run's record)"
"""Takes the place, in a record, of rows that were given inline or over standard input."""


def _checked_rows(rows: str | tuple[dict[str, Any], ...]) -> str | tuple[dict[str, Any], ...]:
    """Refuse values that would reach the program as null, or not at all; give large integers their marker."""
    if isinstance(rows, str):
        return rows
    found = []
    for index, row in enumerate(rows):
        try:
            found.append(with_integers_packed(row))
            json.dumps(found[-1], allow_nan=False)
            orjson.dumps(found[-1])
        except (ValueError, TypeError) as error:
            raise ValueError(f"row {index} cannot be written as JSON, give the value as text: {error}") from None
    return tuple(found)


Rows = Annotated[str | Annotated[tuple[dict[str, Any], ...], Field(min_length=1)], AfterValidator(_checked_rows)]
"""A file of rows, a split of the server, or the rows themselves."""

NumberOrText = Annotated[str, BeforeValidator(_as_text), WithJsonSchema({"type": ["string", "integer"]})]
"""A text that may look like a number."""


class DatasetSettings(SettingsGroup, title="Rows"):
    """Rows: files (.json, .jsonl, .csv), splits that the server holds, tables of the configuration file, or `-`.

    `-` reads JSON Lines, or one JSON array, from standard input.
    """

    trainset: Rows | None = setting(
        None,
        "Rows to learn from: a .json, .jsonl or .csv file, a split of the server, or - for JSON from stdin.",
        everyday=True,
        metavar="FILE|SPLIT|-",
        shown="the server's split `train`, if it has one",
        parse=str,
        anchor=_rows_path,
    )
    valset: Rows | None = setting(
        None,
        "Rows to select candidates by.",
        everyday=True,
        metavar="FILE|SPLIT|-",
        shown="split `val`, else by val_fraction",
        parse=str,
        anchor=_rows_path,
    )
    val_fraction: Annotated[float, Field(ge=0, lt=1)] | None = setting(
        None,
        "Share of the training rows to keep for validation if there is no valset; 0 uses all rows for both.",
        shown=f"{VAL_FRACTION:g}; 0 below {LEAST_TO_SPLIT} rows",
    )
    tie_rows: Annotated[int, Field(ge=0)] = setting(
        0,
        "Compare best candidates that tie (4 at most) on N unused training rows: up to 4 N metric calls.",
    )
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = setting(
        0.0,
        "Share of the training rows to keep as test rows, such as 0.2, if there is no testset. If fewer than 50 rows "
        "are left, they are used for validation too, unless val_fraction is given.",
        everyday=True,
        shown="none",
    )
    testset: Rows | None = setting(
        None,
        "Rows to score the seed and the best candidate on, at the end only.",
        everyday=True,
        metavar="FILE|SPLIT|-",
        shown="split `test`, if any",
        parse=str,
        anchor=_rows_path,
    )
    failure_score: Score = setting(0.0, "Score of an example on which the program fails or times out.")


class BudgetSettings(SettingsGroup, title="Budget"):
    """When to stop: at least one of the first ones."""

    max_metric_calls: PositiveInt | None = setting(
        None,
        "Stop after N evaluated examples, those of the seed too; the iteration that has begun ends first. Test rows "
        "are not counted, nor those of the trial before a run (`check`).",
        everyday=True,
        limit=Limit("metric_calls"),
    )
    auto: Literal["light", "medium", "heavy"] | None = setting(
        None, "Compute max_metric_calls as `dspy.GEPA(auto=...)` does.", limit=Limit()
    )
    max_cost_usd: PositiveFloat | None = setting(
        None,
        "Stop after X US dollars, of the costs that servers and models report. What reports none is not counted: give "
        "max_metric_calls too.",
        everyday=True,
        limit=Limit("spent_usd"),
    )
    max_seconds: Annotated[float, Field(gt=0, le=LONGEST_S)] | None = setting(
        None, "Stop after X seconds of work; pauses do not count.", limit=Limit("active_seconds")
    )
    patience: PositiveInt | None = setting(None, "Stop after N iterations without a better candidate.", limit=Limit())
    target_score: Score | None = setting(
        None, "Stop at this score on the validation rows.", limit=Limit("score", doubled=False)
    )
    past_perfect: bool = setting(False, "Continue although a candidate has the perfect score on every validation row.")
    max_iterations: PositiveInt | None = setting(None, "Stop after N iterations.", limit=Limit("iteration"))
    failure_stop: Annotated[float, Field(gt=0, le=1)] | None = setting(
        None,
        "Pause if more than this share of the last 50 examples fail in the program.",
        rare=True,
        shown="0.5; 1 if code evolves",
    )


def _template(value: Any, folder: Path) -> Any:
    """Replace each `@FILE` by the content of the file."""
    if isinstance(value, dict):
        return {name: _template(part, folder) for name, part in value.items()}
    if not isinstance(value, str) or not value.startswith("@"):
        return value
    try:
        return (folder / value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {value[1:]}: {getattr(error, 'strerror', None) or error}") from None


class ReflectionSettings(SettingsGroup, title="Reflection"):
    """Reflection: what proposes new texts."""

    reflection_lm: Annotated[str | None, BeforeValidator(_model_or_none)] = setting(
        None,
        "Model that proposes new texts, by litellm's name such as openai/gpt-5; it needs the provider's key. A server "
        "of your own: openai/NAME with OPENAI_BASE_URL and any OPENAI_API_KEY. To try without a key: `evolverpc "
        "demo-model` prints variables to set; then openai/demo.",
        everyday=True,
        metavar="MODEL|program",
        shown="`program`: its `propose_new_texts`, without a model",
    )
    reflection_lm_kwargs: dict[str, Any] | None = setting(
        None, "Arguments of each call to it, such as temperature or api_base.", parse=json_object
    )
    reflection_prompt_template: str | dict[str, str] | None = setting(
        None,
        "Its prompt, with <curr_param> and <side_info>; as JSON, one per component (git_branch: that of code).",
        metavar="TEXT|@FILE|JSON",
        shown="GEPA's",
        parse=object_or_text,
        anchor=_template,
    )
    reflection_minibatch_size: PositiveInt | None = setting(
        None, "Examples per reflection.", shown=f"{GEPA_MINIBATCH}, as GEPA's"
    )
    reflection_prompt_tokens: Annotated[int, Field(ge=1000)] | None = setting(
        None,
        "Tokens of a prompt: longer records are cut in the middle. A token is counted as 4 bytes.",
        shown="half of the model's context window; 64,000 if that is unknown",
    )
    reflection_images: bool | None = constant(
        None, "Whether the model takes the images of records; else it reads their type and size."
    )
    max_component_tokens: PositiveInt | None = setting(
        None,
        "Tokens of a proposed text, which the model is asked to keep to. A token is counted as 4 bytes.",
        shown="no limit",
    )
    reflection_per_minute: PositiveFloat | None = setting(
        None, "Calls to the reflection model per minute, evenly spaced.", shown="no limit"
    )
    module_selector: Literal["round_robin", "all"] = setting("round_robin", "Components that one proposal changes.")
    skip_perfect_score: bool = setting(True, "Do not reflect on a minibatch of perfect scores.", rare=True)
    perfect_score: Score = setting(1.0, "The highest score that a row can have; such a row is not reflected on.")
    score_range: Annotated[tuple[Score, Score] | None, AfterValidator(_growing)] = setting(
        None,
        "The lowest and the highest score that there can be: the test of a certificate rests on them.",
        rare=True,
        metavar="LOW,HIGH",
        shown="0 and perfect_score",
        parse=_ends,
    )


class SearchSettings(SettingsGroup, title="Search"):
    """Search: which candidates are tried and kept."""

    proposals: NumberOrText = setting(
        "1", "Proposals per iteration: P from P parents, or N from each of them.", metavar="P|PxN"
    )
    candidate_selection_strategy: Literal["pareto", "current_best", "epsilon_greedy", "top_k_pareto"] = setting(
        "pareto", "Which candidate is improved next.", metavar="STRATEGY"
    )
    selection_strategy: str = setting("all", "Improving proposals kept per iteration.", metavar="all|best|top_k:K")
    frontier_type: Literal["instance", "objective", "hybrid", "cartesian"] = setting(
        "instance", "What the Pareto front is kept over.", metavar="TYPE"
    )
    validation: str = setting(
        "full",
        "Score proposals on all validation rows, or race them on N of these; M others confirm the best one.",
        metavar="full|race[:N[:M]]",
    )
    cache_evaluation: bool = setting(False, "Score a candidate on the same row only once.")
    deterministic: bool | None = setting(
        None,
        "The program gives a candidate the same result on a row each time, so that its results are reused.",
        shown="as the program declares",
    )
    use_merge: bool = setting(False, "Also merge candidates that are good at different rows.")
    seed: int = setting(0, "Seed of every random choice.")
    acceptance_criterion: Annotated[
        Literal["strict_improvement", "improvement_or_equal", "paired", "strict", "equal"],
        AfterValidator(lambda name: {"strict": "strict_improvement", "equal": "improvement_or_equal"}.get(name, name)),
    ] = setting(
        "strict_improvement",
        "When a proposal is accepted: a higher sum of scores on its minibatch, no lower sum, or a paired test.",
        metavar="strict|equal|paired",
        shown="strict",
        short="acceptance",
    )


class FleetSettings(SettingsGroup, title="Servers"):
    """The servers: at least one, by its URL or in a fleet file, or in sandboxes that are started from a `repo`."""

    url: Texts = setting((), "Servers that run already, such as http://127.0.0.1:8000.", metavar="URL")
    token_file: Path | None = setting(
        None, "File that holds the token of the servers.", everyday=True, shown="the variable GEPA_TOKEN"
    )
    fleet: Path | None = setting(None, "File of servers, read again on change: one `URL [token-file=PATH]` per line.")
    score_with: Texts = setting(
        (),
        "Server that scores what the program leaves unscored, as a line of a fleet file; repeatable.",
        metavar="'URL [token-file=PATH]'",
        anchor=_scorers,
    )
    allow_insecure: bool = setting(False, "Allow plain http to other machines.")
    allow_mixed_programs: bool = setting(
        False,
        "Allow programs of other names or results, or that change during the run, with the same components.",
        rare=True,
    )
    concurrency: PositiveInt | None = setting(
        None, "Examples in flight at the same time, over all servers together.", shown="what the servers take"
    )
    example_timeout_s: PositiveFloat | None = setting(
        None, "Seconds that one example may run, if less than the server's own limit.", shown="the server's"
    )


class CodeSettings(SettingsGroup, title="Code"):
    """Code: whether the program's code evolves too, and when."""

    evolve: Evolve | None = setting(None, "What is changed.", shown="both if the server changes code, else prompts")


class ModelProvider(SettingsGroup):
    """A model provider that programs reach through the gateway, by the names of variables that it chooses for them.

    `key_env`: the variable of this environment that holds its key, None if it needs none. `dialect`: whose API it
    speaks. `key_header`: the header of the key, if it is not its dialect's. `counts_streams`: whether it accepts
    OpenAI's `stream_options.include_usage`. `extra_fields`: fields of request bodies that are forwarded to it besides
    those of the OpenAI or Anthropic API.
    """

    base_url: str
    key_env: str | None = None
    dialect: Literal["openai", "anthropic"] = "openai"
    key_header: str | None = None
    counts_streams: bool = True
    extra_fields: tuple[str, ...] = ()


_SECRET_HEADER = re.compile(
    r"(?P<host>[^\s=]+) +(?P<header>[^\s=]+)=((?P<scheme>[^\s=]+) )?(?P<variable>[A-Za-z_][A-Za-z0-9_]*)"
)


def parse_secret_header(text: str) -> tuple[str, str, str, str]:
    """Return the host in small letters, the header, the prefix of its value (`Bearer ` or nothing) and the variable.

    Raises:
        ValueError: it has another form. The message does not repeat it, because it may hold the secret itself.
    """
    if (match := _SECRET_HEADER.fullmatch(text)) is None:
        raise ValueError(
            "give `HOST HEADER=VARIABLE`, or a word before the variable, "
            "such as `api.example.com Authorization=Bearer EXAMPLE_TOKEN`"
        )
    scheme = match["scheme"]
    return match["host"].lower(), match["header"], f"{scheme} " if scheme else "", match["variable"]


def _sandbox_here() -> SandboxKind:
    """Return Docker if it is installed and bubblewrap is not."""
    return "docker" if shutil.which("bwrap") is None and shutil.which("docker") is not None else "bubblewrap"


class SandboxSettings(SettingsGroup, title="Sandboxes"):
    """Sandboxes: servers that are started for the run, from the program's repository."""

    repo: str | None = setting(
        None,
        "The program's git repository, to start servers from: a folder or a URL. Its gepa.toml names the program.",
        everyday=True,
        metavar="PATH|URL[#FOLDER]",
        anchor=_repo,
    )
    ref: str | None = setting(None, "Commit, tag or branch of repo.", metavar="COMMIT", shown="what is checked out")
    sandbox: SandboxKind = setting(
        _sandbox_here,
        "Sandbox backend; `process` isolates nothing, for development.",
        shown="bubblewrap, or docker where that alone is installed",
    )
    sandboxes: PositiveInt = setting(1, "Sandboxes that run at the same time.")
    allow_hosts: Texts = setting(
        (), "Host that the program may reach besides models; repeatable.", metavar="HOST|CIDR|*"
    )
    pass_env: Texts = setting(
        (), "Variable of this environment to pass to the program, as a secret; repeatable.", metavar="NAME"
    )
    secret_headers: Texts = setting(
        (),
        "Header that the gateway sets in requests to a host, from a variable of this environment; repeatable.",
        metavar="'HOST HEADER=[WORD] VARIABLE'",
    )
    models: Texts = setting(
        (), "Model that the program may call, a pattern with * and ?; repeatable.", metavar="NAME", shown="all"
    )
    model_prices: dict[str, tuple[Usd, Usd]] | None = setting(
        None,
        "US dollars per million tokens, for models that litellm does not price or whose price differs; of reflection "
        'and of programs: {"MODEL": [IN, OUT]}.',
        parse=json_object,
    )
    model_calls_per_minute: PositiveInt | None = setting(
        None, "Calls to models per minute, of all sandboxes together.", shown="no limit"
    )
    model_providers: dict[str, ModelProvider] | None = setting(
        None,
        'More model providers: {"NAME": {"base_url": URL, "key_env": VARIABLE}}.',
        rare=True,
        parse=json_object,
        shown="OpenAI and Anthropic",
    )
    server_args: str = setting("", "More flags of `evolverpc serve` in each sandbox.", metavar="FLAGS", rare=True)
    build_hosts: Texts = setting(
        REGISTRIES,
        "Host that may be reached while the environment is built; repeatable.",
        metavar="HOST|CIDR|*",
        shown="PyPI, npm, nodejs.org, GitHub",
        rare=True,
    )
    engine: str | None = setting(
        None,
        "Ray cluster on whose nodes the sandboxes run, or auto on one of its nodes.",
        metavar="ray://HOST:PORT|auto",
        shown="this machine",
    )
    sandbox_cpu: PositiveFloat = setting(1.0, "Cores of each sandbox.")
    sandbox_memory_mb: PositiveInt = setting(2048, "Memory of each sandbox, in MiB.")
    git_token_file: Path | None = setting(None, "File that holds a token for cloning repo.")
    gateway: str | None = setting(
        None,
        "For Modal: the loopback port of the gateway to models, and the URL of your forwarder that leads to it.",
        rare=True,
        metavar="PORT=URL",
    )
    modal_app: str | None = setting(None, "App at Modal that the sandboxes belong to.", rare=True, metavar="NAME")


class TrackingSettings(SettingsGroup, title="Output"):
    """Experiment trackers."""

    tracking: tuple[Literal["wandb", "mlflow"], ...] = setting(
        (),
        "Experiment tracker to log to, which must be installed and reads its own variables; repeatable.",
        rare=True,
        metavar="wandb|mlflow",
    )


class OutputSettings(SettingsGroup, title="Output"):
    """Output."""

    name: str | None = setting(None, "Name of the run, a part of its id.", everyday=True, metavar="NAME")
    output: Path | None = setting(None, "Folder for the results, new or empty.", everyday=True, shown="runs/TIME-NAME")
    store: str | None = setting(
        None, "Database of runs: a file, or mongodb://...", metavar="PATH|URL", shown="runs/evolverpc.db", anchor=_store
    )
    check: Literal["strict", "warn", "off"] = setting(
        "strict",
        "Try a few training rows first: faults stop the run (strict) or warn (warn); off: no trial.",
    )
    require: Literal["improved"] | None = setting(
        None, "Exit with 4 unless the run's certificate states `improved`; needs test rows."
    )
    lease_s: PositiveFloat = setting(
        10.0, "Seconds without a heartbeat after which another process may resume the run.", rare=True
    )
