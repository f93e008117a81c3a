"""Every setting of a server, by one name in `gepa.toml`, in `[tool.gepa]` of `pyproject.toml` and as a flag."""

import math
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

KINDS = ("program", "adapter", "command")
"""What a program may be given as."""

_FOR = {
    "adapter_args": ("adapter",),
    "python": ("program", "adapter"),
    "workers": ("program", "command"),
    "threads": ("program",),
    "thread_safe": ("adapter",),
    "transient": ("program", "adapter"),
}
"""Settings that mean something to some kinds only."""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _none_where_endless(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def concerns(setting: str, kind: str) -> bool:
    """Whether a setting means anything where the program is given as `kind`."""
    return kind in _FOR.get(setting, KINDS)


class Settings(BaseModel):
    """One server in front of one program, given as exactly one of `program`, `adapter` and `command`.

    Paths are relative to `root`, the folder of the configuration file (else the working directory), where user code
    runs too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path = Field(default_factory=Path.cwd)
    # the program
    program: str | None = None  # a module of plain functions: `pkg.module` or `path/to/file.py`
    adapter: str | None = None  # a GEPAAdapter class (or a function making one): `pkg.module:Name`
    adapter_args: dict[str, Any] = {}
    command: tuple[str, ...] | None = None  # a command that speaks the protocol over stdio
    seed_candidate: dict[str, str] | Path | None = None  # a table or a JSON file; an adapter needs it
    name: str | None = None
    version: str | None = None
    python: Path | None = None  # the user's interpreter; found by itself when not given
    env: dict[str, str] = {}  # added to the program's environment
    # how it runs
    workers: Annotated[int, Field(ge=1)] | None = None  # program processes; one per core when not given
    threads: Annotated[int, Field(ge=1)] = 1  # examples at once in one process, in threads
    max_concurrency: Annotated[int, Field(ge=1)] | None = None  # examples at once in all; async functions and commands
    thread_safe: bool = False  # the adapter bears overlapping calls
    transient: tuple[str, ...] | None = None  # exception types that are nobody's fault
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
    max_trace_bytes: Annotated[int, Field(ge=0)] = 256 * 2**20
    max_answer_bytes: Annotated[int, Field(ge=0)] = 256 * 2**20
    abandon_after_s: Seconds = 60.0
    keep_answers_s: Seconds = 3600.0
    drain_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 30.0

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            said = " and ".join(given) if given else "none"
            raise ValueError(f"give exactly one of `program`, `adapter` and `command` (given: {said})")
        return self

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> Self:
        """Refuse what was said and would not be heeded."""
        for name in sorted(self.model_fields_set):
            if not concerns(name, self.kind):
                raise ValueError(f"`{name}` is for {_either(_FOR[name])}, not for `{self.kind}`")
        return self

    @property
    def kind(self) -> str:
        """What the program is given as: one of `KINDS`."""
        return next(name for name in KINDS if getattr(self, name) is not None)


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in names)
