"""The conformance cases as models: what a check is, what its steps send, what they expect."""

from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Matcher = Any
"""A value that an answer is held against; the language is in `protocol/conformance/README.md`."""


class CaseModel(BaseModel):
    """Cases are data written by hand: a misspelt key must not turn into a check that checks nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Expectation(CaseModel):
    """The expected answer. A field that is not given expects nothing, except as `CaseStep.expect` defines.

    `status`: HTTP statuses allowed. `headers`: matchers by lower-case name. `id`, `result`, `error`: of the JSON-RPC
    answer. `body`: the whole body as JSON. `empty`: no body. `or_lost`: the server may instead close the connection.
    `within_s`: seconds from sending to the whole answer.
    """

    status: list[int] | None = None
    headers: dict[str, Matcher] = {}
    id: Matcher = None
    result: Matcher = None
    error: Matcher = None
    body: Matcher = None
    empty: bool = False
    or_lost: bool = False
    within_s: float | None = None


class HttpOverrides(CaseModel):
    """What differs from `POST /rpc` with the token and `Content-Type: application/json`.

    `path` is the server's, in place of the RPC path. `headers`: added or replaced; null leaves one out,
    a list sends one header for each value.
    `upload`: `chunked` sends the body without its length; `withheld` declares one byte more than `max_request_bytes`
    and sends only the body given; `endless` sends chunks up to twice that limit.
    """

    verb: str = "POST"
    path: str | None = None
    query: str | None = None
    headers: dict[str, str | list[str] | None] = {}
    upload: Literal["chunked", "withheld", "endless"] | None = None


class CaseStep(CaseModel):
    """One thing done in a check; exactly one of `call`, `send`, `raw`, `parallel`, `compare` and `end`.

    `call`: a request for this method with `params` and a fresh id. `send`: this JSON as the body. `raw`: this text, or
    list of texts and generators, as the body. `parallel`: steps at the same time. `compare`: a value held `with` a
    matcher. `end`: start the program over stdio once more, and end its input or send it SIGTERM; it must exit within
    `expect.within_s`. `times`: this step so many times at once. `after_s`: wait before it. `disconnect_after_s`: close
    the connection then, expecting nothing. `save`: name -> path in the answer (`elapsed` for the seconds it took).
    Without `expect`, a request must have a result.
    """

    call: str | None = None
    params: Any = None
    send: Any = None
    raw: Any = None
    parallel: "list[CaseStep] | None" = None
    compare: Any = None
    end: Literal["input", "sigterm"] | None = None
    with_: Matcher = Field(default=None, alias="with")
    times: int = 1
    after_s: float | dict[str, Any] = 0.0
    http: HttpOverrides = HttpOverrides()
    disconnect_after_s: float | None = None
    save: dict[str, str] = {}
    expect: Expectation | None = None

    @property
    def kind(self) -> str:
        """Which of the six kinds of step this is."""
        return next(iter(self.model_fields_set & KINDS))

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if len(self.model_fields_set & KINDS) != 1:
            raise ValueError(f"a step is exactly one of {', '.join(sorted(KINDS))}")
        return self


KINDS = frozenset({"call", "send", "raw", "parallel", "compare", "end"})

CORE = "core"
"""What every endpoint must do; the other parts of the contract are the capabilities."""


class Check(CaseModel):
    """One sentence about an endpoint, and the steps that find out whether it holds.

    `requires`, `lacks`: capabilities that must, must not, be advertised for the check to apply. `when`: matchers by
    path in the answer of `discover`, without which the check does not apply. `needs` (a matcher by limit; one that is
    not stated is infinite), `program` (that must be served) and `needs_token` (the runner must hold one): without these
    the check applies, and nothing is verified.
    `over`: `http` for what the server before a program over stdio sees to, `stdio` for what only such a program does.
    `section`: of `docs/protocol.md`.
    `timeout_s`: seconds for all of it.
    """

    id: Annotated[str, Field(pattern=r"^[a-z_]+(\.[a-z0-9_]+)+$")]
    title: str
    level: Literal["must", "should"]
    section: str
    requires: list[str] = []
    lacks: list[str] = []
    over: Literal["http", "stdio", "any"] = "any"
    when: dict[str, Matcher] = {}
    needs: dict[str, Matcher] = {}
    program: str | None = None
    needs_token: bool = False
    timeout_s: float = 60.0
    steps: Annotated[list[CaseStep], Field(min_length=1)]

    @property
    def part(self) -> str:
        """The capability that it verifies, or `core`."""
        named = self.id.partition(".")[0]
        return named if named in self.requires else self.requires[0] if self.requires else CORE


class Area(CaseModel):
    """One file of cases."""

    area: str
    about: str
    checks: list[Check]


@cache
def load_checks(over: Literal["http", "stdio"] = "http") -> tuple[Check, ...]:
    """Every check of a server, or of a program over stdio behind ours, in the order of the files' names."""
    folder = files("protocol") / "conformance"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    areas = [Area.model_validate_json((folder / name).read_bytes()) for name in names]
    return tuple(check for area in areas for check in area.checks if check.over in (over, "any"))
