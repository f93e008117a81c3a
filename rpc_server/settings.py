"""Every setting of a server: default, type and description; and the sources that they are read from."""

import math
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from evolverpc_common.python_package_managers import own_install
from evolverpc_common.settings.definition import (
    SettingsGroup,
    constant,
    json_object,
    object_or_text,
    pair,
    path_unless,
    setting,
    settings_of,
)
from evolverpc_common.settings.sources import (
    SettingsSource,
    from_environment,
    from_file,
    from_flags,
    read_toml,
    validated,
)
from rpc_server.memory_bounds import share

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]

_FOR_MUTATIONS = (
    *("agent_command", "agent_model", "agent_max_cost_usd", "agent_timeout_s"),
    *("check_command", "allow", "deny", "allow_tests", "push"),
)
_FOR_TREES = ("links", "tree_dir")
_FOR_CLAUDE = ("agent_model", "agent_max_cost_usd")


class CodeChangeSettings(SettingsGroup, title="Code"):
    """How the program's repository is used; unused unless `trees` or `allow_mutations` is set."""

    allow_mutations: bool = setting(
        False,
        "Let clients change the program's code, on branches of its repository; your own files stay as they are. Any "
        "file may change there, also the one that scores: see allow and deny.",
        everyday=True,
    )
    trees: bool = setting(False, "Run candidates from the commit that they name, each in its own files.")
    check_command: tuple[str, ...] | None = setting(
        None, "Tests or lint that a mutation must pass: exit status 0 in the changed files.", parse=shlex.split
    )
    check_timeout_s: Seconds = constant(300.0, "Seconds for check_command.")
    build_command: tuple[str, ...] | None = setting(
        None,
        "Command to run in the program's folder before it starts, of each commit if code evolves.",
        parse=shlex.split,
    )
    build_timeout_s: Seconds = constant(600.0, "Seconds for build_command.")
    allow: tuple[str, ...] = setting(
        ("**",), "Glob of paths in the repository that mutations may change; repeatable.", metavar="GLOB"
    )
    deny: tuple[str, ...] = setting((), "Glob of paths that mutations may not change; repeatable.", metavar="GLOB")
    allow_tests: bool = setting(
        False,
        "Let mutations change tests, and what configures or runs check_command. Without check_command they always may.",
    )
    push: str | None = setting(None, "Git remote that finished branches are pushed to.", metavar="REMOTE")
    agent_command: tuple[str, ...] | None = setting(
        None, "Coding agent: reads the task on stdin, edits the files.", parse=shlex.split, shown="Claude, built in"
    )
    agent_model: str | None = setting(None, "Model of the built-in agent.", metavar="NAME", shown="Claude's own")
    agent_max_cost_usd: Annotated[float, Field(gt=0)] | None = setting(
        None, "US dollars that the built-in agent may spend on one mutation.", shown="no limit"
    )
    agent_timeout_s: Seconds = setting(1200.0, "Seconds that an agent may take for one mutation.")
    agent_max_turns: Count = constant(60, "Turns of the built-in agent for one mutation.")
    agent_tools: tuple[str, ...] = constant(
        ("Read", "Edit", "Write", "Glob", "Grep", "Bash"),
        "Tool that the built-in agent may use.",
    )
    max_mutations: Count = constant(8, "Mutations at the same time; more wait.")
    max_diff_bytes: Count = constant(256 * 2**10, "Bytes of a mutation's diff.")
    max_trees: Count = constant(20, "Commits that are ready to run at the same time, besides mutations' own.")
    tree_dir: Path | None = setting(
        None, "Folder for the files of commits.", rare=True, shown="the user's cache folder"
    )
    links: tuple[str, ...] = setting(
        (), "Untracked file or folder that each commit's files get a link to; repeatable.", metavar="PATH", rare=True
    )

    @property
    def has_trees(self) -> bool:
        """Whether candidates name commits."""
        return self.trees or self.allow_mutations

    @model_validator(mode="after")
    def _check_code(self) -> Self:
        given = self.model_fields_set
        for names, needed, there in (
            (_FOR_MUTATIONS, "allow_mutations", self.allow_mutations),
            (_FOR_TREES, "trees", self.has_trees),
        ):
            for name in names:
                if name in given and not there:
                    raise ValueError(f"`{name}` needs `{needed}`")
        if "allow_tests" in given and self.check_command is None:
            raise ValueError("`allow_tests` needs `check_command`")
        for name, command, instead in (
            ("agent_command", self.agent_command, " for Claude"),
            ("build_command", self.build_command, ""),
            ("check_command", self.check_command, ""),
        ):
            if command is not None and (not command or not command[0].strip()):
                raise ValueError(f"`{name}` is empty: name a command, or leave it out{instead}")
        for name in _FOR_CLAUDE:
            if name in given and self.agent_command is not None:
                raise ValueError(f"`{name}` is for the built-in agent, but `agent_command` names another")
        return self


Kind = Literal["program", "adapter", "command", "dspy"]

GIVEN_AS: tuple[Kind, ...] = ("program", "adapter", "command")
"""The settings that name a program; each is the kind that it stands for if `kind` names no other."""

_FOR: dict[str, tuple[Kind, ...]] = {
    "adapter_args": ("adapter",),
    "python": ("program", "adapter", "dspy"),
    "workers": ("program", "command"),
    "trust_results": ("program", "adapter", "dspy"),
    "model_hosts": ("program", "adapter", "dspy"),
    "metric": ("dspy",),
    "inputs": ("dspy",),
    "saved_program_json_path": ("dspy",),
    "dspy": ("dspy",),
}
"""Settings that mean something to some kinds only."""


def _none_if_infinite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def concerns(name: str, kind: str) -> bool:
    """Return whether a setting has a meaning for programs of this kind."""
    return name not in _FOR or kind in _FOR[name]


def _install(table: Any) -> Any:
    if table is not None:
        own_install(table)
    return table


def _files(value: Any, folder: Path) -> Any:
    if not isinstance(value, dict):
        return value
    return {split: str(folder / path) if isinstance(path, str | Path) else path for split, path in value.items()}


class ProgramSettings(SettingsGroup, title="Program"):
    """The program, given as exactly one of `program`, `adapter` and `command`."""

    program: str | None = setting(
        None,
        "Module of plain functions, pkg.module or file.py; for dspy pkg.module.Class.",
        everyday=True,
        metavar="MODULE",
        anchor=path_unless(lambda text: not text.endswith(".py")),
    )
    adapter: str | None = setting(
        None, "GEPAAdapter class, or a function that makes one.", everyday=True, metavar="pkg.module:Name"
    )
    command: tuple[str, ...] | None = setting(
        None,
        "Command that reads JSON-RPC on stdin and answers on stdout, one message a line; quoted, or as the last flag.",
        everyday=True,
        parse=shlex.split,
    )
    seed_candidate: dict[str, str] | Path | None = setting(
        None,
        "Texts to begin with, as JSON or a JSON file; an adapter needs it.",
        everyday=True,
        metavar="JSON|FILE",
        parse=object_or_text,
        anchor=path_unless(lambda _: False),
    )
    python: Path | None = setting(
        None,
        "Interpreter that runs the program.",
        everyday=True,
        shown="found beside the program",
        anchor=path_unless(lambda text: "/" not in text),  # a bare name is looked up on the search path
    )
    kind: Kind | None = setting(None, "Kind of program; only dspy must be given.", shown="as the program is given")
    name: str | None = setting(None, "Name of the program.", variable="GEPA_PROGRAM_NAME", metavar="NAME")
    version: str | None = setting(
        None,
        "Version of the program; alone, print that of evolverpc and exit.",
        variable="GEPA_PROGRAM_VERSION",
    )
    root: Path = setting(
        Path.cwd, "Folder that paths start from and the program runs in.", shown="the configuration file's"
    )
    env: dict[str, str] = setting(dict, "Variable for the program's environment; repeatable.", parse=pair, shown="none")
    adapter_args: dict[str, Any] = setting(dict, "Arguments of the adapter.", parse=json_object, shown="none")
    artifacts: Path | None = setting(
        None,
        "Folder that `finalize` writes to: its files are copied from a sandbox into the run's folder.",
        metavar="FOLDER",
    )
    install: Annotated[dict[str, Any] | None, AfterValidator(_install)] = setting(
        None,
        "`command` installs the program, in place of the tool that its files decide; `reads`: files that it reads.",
        parse=json_object,
        rare=True,
        shown="none",
    )
    rollouts: dict[str, str] = setting(
        dict,
        "For batches of the service: `system_prompt` names a component, `user_message` and `model_id` fields of a row.",
        parse=json_object,
        rare=True,
        shown="none",
    )
    jail: bool | None = setting(
        None,
        "Run each process in a bubblewrap jail that writes its own files only (Linux).",
        shown="yes if code evolves and bubblewrap works",
    )


class DspyOptions(SettingsGroup):
    """Options of `dspy.GEPA` by their names there.

    `reflection_lm`, `instruction_proposer`: dotted paths of a `dspy.LM` and of an instruction proposer; with one of
    them DSPy proposes texts (DSPy 3.2), else the optimizer does. `field_descriptions`, `demos`: whether these of the
    predictors are improved too.
    """

    reflection_lm: str | None = None
    instruction_proposer: str | None = None
    field_descriptions: bool = False
    demos: bool = False
    add_format_failure_as_feedback: bool = False
    warn_on_score_mismatch: bool = True
    seed: int = 0


class DspySettings(SettingsGroup, title="DSPy programs"):
    """A DSPy program, for `kind` dspy."""

    metric: str | None = setting(
        None, "Metric: takes (example, prediction) or GEPA's five arguments.", metavar="pkg.module.function"
    )
    inputs: tuple[str, ...] | None = setting(
        None,
        "Field of the rows that the program is called with; repeatable. The metric gets all fields.",
        metavar="FIELD",
        shown="those that its parameters name",
    )
    saved_program_json_path: Path | None = setting(None, "Saved program: read at the start, written by `finalize`.")
    dspy: DspyOptions = setting(
        DspyOptions,
        'Options of dspy.GEPA, such as {"demos": true, "reflection_lm": "pkg.module.lm"}; the guide has all.',
        parse=json_object,
        shown="DSPy's",
    )


class ProcessSettings(SettingsGroup, title="Processes"):
    """How the program runs."""

    concurrency: Count = setting(
        16,
        "Examples at the same time, in all processes together; for an adapter, its calls.",
        everyday=True,
        shown="16; for an adapter 1",
    )
    workers: Count | None = setting(
        None,
        "Processes of the program.",
        shown="one for each example if the program can be forked, else one per core; given alone, each has one example",
    )
    example_timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=True), AfterValidator(_none_if_infinite)] | None = (
        setting(300.0, "Seconds that one example may run; inf for no limit.", everyday=True)
    )
    trust_results: bool = setting(
        False, "Score what the program returns, even if its last call of a model failed.", rare=True
    )
    model_hosts: tuple[str, ...] = setting(
        (),
        "Host of a model that is not known by its requests, with or without a port; repeatable.",
        metavar="HOST[:PORT]",
        rare=True,
        shown="none",
    )
    logs: bool = setting(False, "Print what the program writes, each example's as it ends.", everyday=True)
    start_timeout_s: Seconds = setting(120.0, "Seconds that the program may take to start.", rare=True)
    call_timeout_s: Seconds = constant(600.0, "Seconds for other calls: records, proposals, `finalize`.")


class RowSettings(SettingsGroup, title="Rows"):
    """Rows that the server holds."""

    datasets: dict[str, Path] = setting(
        dict,
        "Rows of a split, such as train=rows.csv: a .json, .jsonl or .csv file; repeatable.",
        everyday=True,
        parse=pair,
        metavar="SPLIT=FILE",
        shown="none",
        anchor=_files,
    )
    share_rows: bool = constant(True, "Return rows to clients, not only their ids.")


class ListenSettings(SettingsGroup, title="HTTP"):
    """Where the server listens, and to what."""

    host: str = setting(
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 also listens to other machines. Then allowed_hosts has the name by which they "
        "call this one; without a proxy for TLS, do this in private networks only.",
        everyday=True,
        metavar="HOST",
        variable=None,
    )
    port: Annotated[int, Field(ge=0, le=65535)] = setting(
        0, "Port to listen on.", everyday=True, shown="a free one", variable=None
    )
    token_file: Path | None = setting(
        None,
        "File that holds the bearer token; created if missing.",
        everyday=True,
        shown="the variable GEPA_TOKEN, else a new one each start",
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Name or address by which other machines call this server, such as 192.168.1.20, or the origin of a web page "
        "that may call it, such as https://example.com; repeatable.",
        metavar="HOST|ORIGIN",
        variable=None,
    )


class LimitSettings(SettingsGroup, title="Limits"):
    """Bounds on requests, results and what is kept."""

    max_batch_size: Count = setting(1000, "Examples in one call.")
    max_request_bytes: Annotated[int, Field(ge=1024)] = constant(64 * 2**20, "Bytes of one request.")
    max_batch_entries: Count = constant(100, "Requests in one JSON-RPC array.")
    max_queue: Annotated[int, Field(ge=0)] = constant(10_000, "Examples that wait besides those that run.")
    max_result_bytes: Annotated[int, Field(ge=1024)] = constant(
        lambda: share(32, most=48 * 2**20), "Bytes of one example's result."
    )
    max_trace_bytes: Annotated[int, Field(ge=0)] = constant(
        lambda: share(8, most=256 * 2**20), "Bytes of trajectories kept."
    )
    max_answer_bytes: Annotated[int, Field(ge=0)] = constant(
        lambda: share(8, most=256 * 2**20), "Bytes of answers kept."
    )
    abandon_after_s: Seconds = constant(
        60.0, "Seconds that a call with a call_id runs without a request for its answer."
    )
    keep_answers_s: Seconds = constant(3600.0, "Seconds that an answer is kept after its last request.")
    drain_s: Annotated[float, Field(ge=0)] = constant(30.0, "Seconds to finish in after SIGTERM.")


class Settings(
    CodeChangeSettings,
    LimitSettings,
    ListenSettings,
    RowSettings,
    ProcessSettings,
    DspySettings,
    ProgramSettings,
):
    """One server in front of one program, given as exactly one of `program`, `adapter` and `command`.

    Paths are relative to `root`, the folder of the configuration file (else the working directory), where user code
    runs too.
    """

    @property
    def language(self) -> str:
        """The language of the program; of a command the name of its file, such as `perl`."""
        return "python" if self.command is None else Path(self.command[0]).name

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        given = [name for name in GIVEN_AS if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(f"`{name}`" for name in given) if given else "none"
            raise ValueError(
                f"give exactly one of `program`, `adapter` and `command` (given: {found}), as in "
                "`evolverpc serve program.py`"
            )
        if self.kind not in (None, given[0]) and (self.kind, given[0]) != ("dspy", "program"):
            raise ValueError(f"`kind` is {self.kind}, but the program is given as `{given[0]}`")
        if self.kind == "dspy" and self.metric is None:
            raise ValueError("`kind` dspy needs a `metric`: the dotted path of a function")
        return self

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        """Refuse settings that would not be used."""
        for name in sorted(self.model_fields_set):
            if not concerns(name, self.is_a):
                kinds = " or ".join(f"`{kind}`" for kind in _FOR[name])
                raise ValueError(f"`{name}` is for {kinds}, not for `{self.is_a}`")
        return self

    @property
    def is_a(self) -> Kind:
        """What kind of program this is."""
        if self.kind is not None:
            return self.kind
        return next(kind for kind in GIVEN_AS if getattr(self, kind) is not None)


SETTINGS = settings_of(Settings)


PYTHON_VARIABLE = "GEPA_PROGRAM_PYTHON"
"""The interpreter of a Python program where the process that starts the server installed one for it."""

CONFIG_FILE = "gepa.toml"
PROJECT_FILE = "pyproject.toml"
TABLE = "tool.gepa"


def load_settings(
    config: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    find: bool = True,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Return the settings of flags, environment variables and a configuration file, in this order of precedence.

    The file is `config`; else, if `find` is true, `gepa.toml` or a `pyproject.toml` with `[tool.gepa]` in `folder` (the
    working directory if not given). `flags` maps setting names to texts, or to values as a file would give them. Paths
    in flags and variables are relative to `folder`, those in a file to the file's own folder, which becomes `root`.

    Raises:
        SettingsError: no such file, not TOML, an unknown key, a value of the wrong kind, or no program named.
    """
    folder = folder if folder is not None else Path.cwd()
    path = config if config is not None or not find else _find(folder)
    given = _over(from_flags(SETTINGS, flags or {}, folder), from_environment(SETTINGS, environment, folder))
    if path is not None:
        given = _over(given, from_file(path, SETTINGS, TABLE if path.name == PROJECT_FILE else ""))
    if PYTHON_VARIABLE in environment and "command" not in given.values and "python" not in (flags or {}):
        python = SettingsSource({"python": environment[PYTHON_VARIABLE]}, {"python": f"`{PYTHON_VARIABLE}`"})
        given = python.over(given)
    root = (path.parent if path is not None else folder).absolute() / given.values.get("root", ".")
    return validated(Settings, SettingsSource({**given.values, "root": str(root)}, given.spellings))


def _over(given: SettingsSource, lower: SettingsSource) -> SettingsSource:
    """Return `given` over `lower`; another program replaces the lower one, with the settings for its kind."""
    chosen = [name for name in GIVEN_AS if name in given.values]
    if len(chosen) != 1:
        return given.over(lower)
    kind = given.values.get("kind", chosen[0])
    return given.over(lower, [*GIVEN_AS, "kind", *(name for name in lower.values if not concerns(name, kind))])


def _find(folder: Path) -> Path | None:
    config, project = folder / CONFIG_FILE, folder / PROJECT_FILE
    if config.is_file():
        return config
    if project.is_file() and "gepa" in read_toml(project).get("tool", {}):
        return project
    return None
