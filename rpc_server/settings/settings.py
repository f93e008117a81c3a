"""Every setting of a server, by one name in `gepa.toml`, in `[tool.gepa]` of `pyproject.toml` and as a flag."""

import math
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from rpc_server.settings.code_settings import CodeSettings, Seconds
from rpc_server.settings.process_limits import share

Kind = Literal["program", "adapter", "command", "dspy"]

GIVEN_AS: dict[str, Kind] = {"program": "program", "adapter": "adapter", "command": "command"}
"""The settings that name a program, and the kind each stands for where `kind` does not say another."""

_FOR: dict[str, tuple[Kind, ...]] = {
    "adapter_args": ("adapter",),
    "python": ("program", "adapter", "dspy"),
    "workers": ("program", "command"),
    "threads": ("program", "dspy"),
    "thread_safe": ("adapter",),
    "transient": ("program", "adapter", "dspy"),
    "metric": ("dspy",),
    "trainset_path": ("dspy",),
    "valset_path": ("dspy",),
    "saved_program_json_path": ("dspy",),
    "field_descriptions": ("dspy",),
    "demos": ("dspy",),
    "add_format_failure_as_feedback": ("dspy",),
    "seed": ("dspy",),
    "proposer": ("dspy",),
    "reflection_lm": ("dspy",),
}
"""Settings that mean something to some kinds only."""


def _none_where_endless(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def concerns(setting: str, kind: str) -> bool:
    """Whether a setting means anything where the program is of this kind."""
    return setting not in _FOR or kind in _FOR[setting]


class Settings(CodeSettings):
    """One server in front of one program, given as exactly one of `program`, `adapter` and `command`.

    Paths are relative to `root`, the folder of the configuration file (else the working directory), where user code
    runs too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path = Field(default_factory=Path.cwd)
    # the program
    kind: Kind | None = None  # follows from what the program is given as; `dspy` must be said
    # a module of plain functions, `pkg.module` or `path/to/file.py`; for `dspy` the module's class, `pkg.module.Class`
    program: str | None = None
    adapter: str | None = None  # a GEPAAdapter class (or a function making one): `pkg.module:Name`
    adapter_args: dict[str, Any] = {}
    command: tuple[str, ...] | None = None  # a command that speaks the protocol over stdio
    seed_candidate: dict[str, str] | Path | None = None  # a table or a JSON file; an adapter needs it
    name: str | None = None
    version: str | None = None
    python: Path | None = None  # the user's interpreter; found by itself when not given
    env: dict[str, str] = {}  # added to the program's environment
    # each process of the program's, and each command, in a bubblewrap jail of its own: only its own folder is writable;
    # None: where code evolves and a jail can be made
    jail: bool | None = None
    # a DSPy program
    metric: str | None = None  # `pkg.module.function`, taking (example, prediction) or GEPA's five
    trainset_path: Path | None = None
    valset_path: Path | None = None
    saved_program_json_path: Path | None = None  # read at the start where it is there, written by `finalize`
    field_descriptions: bool = False  # evolved too
    demos: bool = False  # evolved too
    add_format_failure_as_feedback: bool = False  # as `dspy.GEPA` has it: answers that do not parse are reflected on
    seed: int = 0  # of the choice among a predictor's several calls, which `dspy.GEPA` seeds as the run
    # who proposes new texts: the optimizer, by GEPA's proposer, or DSPy's own proposer in the program's process
    proposer: Literal["gepa", "dspy"] = "gepa"
    reflection_lm: str | None = None  # for the proposer `dspy`: `pkg.module.lm`, a dspy.LM or a function making one
    # how it runs
    workers: Annotated[int, Field(ge=1)] | None = None  # program processes; one per core when not given
    threads: Annotated[int, Field(ge=1)] | None = None  # examples at once in one process; 1, for `dspy` 8
    # examples at once in all: less than the processes bear together, or with trees those of all commits together
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    thread_safe: bool = False  # the adapter bears overlapping calls
    transient: tuple[str, ...] | None = None  # exception types that are infrastructure failures
    # None is no deadline; TOML and flags, which know no null, say `inf`
    example_timeout_s: Annotated[float, Field(gt=0), AfterValidator(_none_where_endless)] | None = 300.0
    start_timeout_s: Seconds = 120.0
    call_timeout_s: Seconds = 600.0  # records, proposals, `finalize`; more where their examples need more
    # rows the server holds
    datasets: dict[str, Path] = {}
    share_rows: bool = True  # `list_examples` gives the rows, not only their ids
    # the door
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    token_file: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    # bounds
    max_request_bytes: Annotated[int, Field(ge=1024)] = 64 * 2**20
    max_batch_size: Annotated[int, Field(ge=1)] = 1000
    max_batch_entries: Annotated[int, Field(ge=1)] = 100
    max_queue: Annotated[int, Field(ge=0)] = 10_000  # examples waiting beyond those running
    # of one example; like the next two, less where the server may use little memory
    max_result_bytes: int = Field(default_factory=lambda: share(32, most=48 * 2**20), ge=1024)
    max_trace_bytes: int = Field(default_factory=lambda: share(8, most=256 * 2**20), ge=0)
    max_answer_bytes: int = Field(default_factory=lambda: share(8, most=256 * 2**20), ge=0)
    abandon_after_s: Seconds = 60.0
    keep_answers_s: Seconds = 3600.0
    drain_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 30.0

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        given = [name for name in GIVEN_AS if getattr(self, name) is not None]
        if len(given) != 1:
            said = " and ".join(given) if given else "none"
            raise ValueError(f"give exactly one of `program`, `adapter` and `command` (given: {said})")
        stands_for = GIVEN_AS[given[0]]
        if self.kind not in (None, stands_for) and (self.kind, given[0]) != ("dspy", "program"):
            raise ValueError(f"kind is `{self.kind}`, but the program is given as `{given[0]}`")
        if self.kind == "dspy" and self.metric is None:
            raise ValueError("kind `dspy` needs a `metric`: the dotted path of a function")
        if self.proposer == "dspy" and self.reflection_lm is None:
            raise ValueError("the proposer `dspy` needs a `reflection_lm`: the dotted path of a dspy.LM")
        if self.proposer == "gepa" and self.reflection_lm is not None:
            raise ValueError("`reflection_lm` is for the proposer `dspy`; for GEPA's, give it to gepa-client optimize")
        return self

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> Self:
        """Refuse what was said and would not be heeded."""
        for name in sorted(self.model_fields_set):
            if not concerns(name, self.is_a):
                raise ValueError(f"`{name}` is for {_either(_FOR[name])}, not for `{self.is_a}`")
        return self

    @model_validator(mode="after")
    def _one_file_a_split(self) -> Self:
        for setting, split, path in self._paths_of_splits():
            if path is not None and split in self.datasets:
                raise ValueError(f"`{setting}` and `datasets` both give the split `{split}`")
        return self

    @property
    def files(self) -> dict[str, Path]:
        """The files of rows the server holds, by split."""
        given = {split: path for _, split, path in self._paths_of_splits() if path is not None}
        return {**given, **self.datasets}

    def _paths_of_splits(self) -> tuple[tuple[str, str, Path | None], ...]:
        return ("trainset_path", "train", self.trainset_path), ("valset_path", "val", self.valset_path)

    @property
    def is_a(self) -> Kind:
        """What kind of program this is."""
        if self.kind is not None:
            return self.kind
        return next(kind for name, kind in GIVEN_AS.items() if getattr(self, name) is not None)


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in names)
