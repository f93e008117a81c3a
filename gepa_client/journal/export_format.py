"""An exported run as JSON: what each part of it must look like, so that nothing it holds fails later on."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from gepa_client.journal.answer_entries import CompletionJson, MutationEntry, TieDecision, TiePlan
from gepa_client.journal.entries import (
    CANDIDATE,
    COMMITMENT,
    COMPLETION,
    EVALUATE,
    EVENTS,
    FAILURE,
    MUTATION,
    OUTLINE,
    PROCESSES,
    PROPOSAL,
    RACE,
    REFLECTIVE_DATASET,
    REFUSAL,
    REUSE,
    ROLLOUT,
    SCORE,
    START,
    STEER,
    STOP,
    TEST_PLAN,
    TIES,
    Attempt,
    CandidateRecord,
    Entry,
    Index,
    Moment,
    Row,
    RunStatus,
)
from gepa_client.journal.http_messages import WireRow
from gepa_client.journal.run_events import CallRefused, from_fields
from gepa_client.journal.steer_entries import SteerEntry
from protocol import DiscoverResult, ExampleResult, JsonValue, MakeReflectiveDatasetResult, Usage

LARGEST_AMOUNT = 1e15
"""Seconds or dollars: beyond any that were ever spent, and far from where a sum has no end."""

LARGEST_HASH_SEED = 2**32 - 1
"""The largest that Python takes."""

SHOWN_MISTAKES = 3


def _hash_seed(text: str) -> str:
    if not re.fullmatch(r"\d{1,10}", text, re.ASCII) or int(text) > LARGEST_HASH_SEED:
        raise ValueError(f"is a whole number from 0 to {LARGEST_HASH_SEED}")
    return text


Amount = Annotated[float, Field(ge=0, le=LARGEST_AMOUNT)]
RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}\z")]
"""Names a folder, and branches as the contract's `MutationName` has them; `output_folder` makes no others."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Counters(_Part):
    """Figures that are shown; others may stand beside them."""

    model_config = ConfigDict(extra="allow")

    iteration: Index | None = None
    metric_calls: Index | None = None
    candidates: Index | None = None
    max_metric_calls: Index | None = None
    seed_score: float | None = None
    active_seconds: Amount | None = None
    spent_usd: Amount | None = None
    unpriced: dict[str, Index] | None = None
    unreported: dict[str, Index] | None = None
    warnings: list[str] | None = None

    @model_validator(mode="after")
    def _no_others_of_another_kind(self) -> "_Counters":
        for name, value in (self.model_extra or {}).items():
            if isinstance(value, list | dict):
                raise ValueError(f"`{name}` is no figure")
        for name in ("metric_calls", "seed_score"):
            if name in self.model_fields_set and getattr(self, name) is None:
                raise ValueError(f"`{name}` is no figure")
        return self


class _Best(_Part):
    index: Index
    score: float
    texts: dict[str, str]


class _Program(_Part):
    version: str | None = None
    digest: str | None = None


class _Identity(_Part):
    gepa: str
    replay: int
    hash_seed: Annotated[str, AfterValidator(_hash_seed)] | None
    settings: dict[str, Any]
    program: _Program
    seed_candidate: str
    components: list[str]
    whole_batches: bool
    scorer: _Program | None
    data: dict[str, str | None]
    evolve: Literal["code", "both"] | None = None  # absent where prompts alone are
    deterministic: Literal[True] | None = None  # absent of a program that is not, or does not declare it


class _Parent(_Part):
    run: RunId
    at: Index


class ExportedRun(_Part):
    """The run's own record; its settings are checked when they are loaded."""

    id: RunId
    name: str | None
    program: str | None
    status: RunStatus
    reason: str | None
    config: dict[str, Any]
    identity: _Identity | None
    counters: _Counters
    best: _Best | None
    output: str | None
    parent: _Parent | None
    created: Moment
    updated: Moment
    started: Moment | None
    completed: Moment | None


def _checked(row: Row) -> Row:
    """Return a row that a store, a replay and a report can read. Raises `ValueError`."""
    match row:
        case Entry():
            try:
                check_answer(row.part, row.number, row.kind, orjson.loads(row.answer))  # as a replay reads it
            except orjson.JSONDecodeError as error:
                raise ValueError(f"`answer` cannot be read ({error})") from error
            except ValidationError as error:
                raise ValueError(f"no answer to `{row.kind}`: {mistakes(error, 'the answer')}") from None
        case Attempt() if row.usage is not None:
            try:
                Usage.model_validate(row.usage)
            except ValidationError as error:
                raise ValueError(mistakes(error, "usage", "usage.")) from None
    return row


class Document(_Part):
    """The whole file."""

    format: Literal["evolverpc-run"]
    version: Literal[8]
    run: ExportedRun
    rows: list[Annotated[WireRow, AfterValidator(_checked)]]

    @model_validator(mode="after")
    def _hangs_together(self) -> "Document":
        decisions = [row for row in self.rows if isinstance(row, Entry) and row.part == EVENTS]
        indexes = [orjson.loads(row.answer)["index"] for row in decisions if row.kind == CANDIDATE]
        if sorted(indexes) != list(range(len(indexes))):
            raise ValueError(f"candidates are numbered from 0 to {max(0, len(indexes) - 1)}, each once")
        return self


def mistakes(error: ValidationError, whole: str, prefix: str = "") -> str:
    """Return the first few mistakes, each with its place; `whole`: the place of one that has none."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    texts = [
        f"{prefix + '.'.join(map(str, mistake['loc'])) if mistake['loc'] else whole}: "
        f"{mistake['msg'].removeprefix('Value error, ')}"
        for mistake in found
    ]
    more = f", and {len(texts) - SHOWN_MISTAKES} more" if len(texts) > SHOWN_MISTAKES else ""
    return "; ".join(texts[:SHOWN_MISTAKES]) + more


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Stop(_Strict):
    status: Literal["paused", "completed", "failed", "cancelled"]
    reason: str


class _RpcFailure(BaseModel):
    model_config = ConfigDict(strict=True)

    code: int
    message: str
    data: JsonValue = None


class _Failure(_Strict):
    type: str
    message: str
    rpc: _RpcFailure | None = None


class _Row(_Strict):
    id: str
    data: JsonValue
    untyped: bool = False


class _HeldRow(_Strict):
    id: str
    split: str
    data: JsonValue = None


class _Commitment(_Strict):
    digest: str
    rows: list[str]
    held: str | None


class _TestPlan(_Strict):
    count: int = Field(ge=1)
    reason: str


class _Raced(BaseModel):
    model_config = ConfigDict(strict=True)

    proposal: int
    drops: bool


class _Race(BaseModel):
    model_config = ConfigDict(strict=True)

    slots: int
    proposals: list[_Raced]
    rows: list[int]


_BY_KIND: dict[str, TypeAdapter[Any]] = {
    EVALUATE: TypeAdapter(ExampleResult),
    ROLLOUT: TypeAdapter(ExampleResult),
    SCORE: TypeAdapter(ExampleResult),
    REFLECTIVE_DATASET: TypeAdapter(MakeReflectiveDatasetResult),
    "adapter_state": TypeAdapter(MakeReflectiveDatasetResult),
    COMPLETION: TypeAdapter(CompletionJson, config=ConfigDict(strict=True)),
    PROPOSAL: TypeAdapter(dict[str, str | None], config=ConfigDict(strict=True)),
    OUTLINE: TypeAdapter(str, config=ConfigDict(strict=True)),
    MUTATION: TypeAdapter(MutationEntry),
    COMMITMENT: TypeAdapter(_Commitment),
    TEST_PLAN: TypeAdapter(_TestPlan),
    TIES: TypeAdapter(TiePlan | TieDecision),
    RACE: TypeAdapter(_Race),
    REUSE: TypeAdapter(list[list[int]], config=ConfigDict(strict=True)),
    STEER: TypeAdapter(SteerEntry),
    STOP: TypeAdapter(_Stop),
    REFUSAL: TypeAdapter(CallRefused),
    FAILURE: TypeAdapter(_Failure),
    "finalize": TypeAdapter(str | None, config=ConfigDict(strict=True)),
}
_AT_START: dict[int, TypeAdapter[Any]] = {0: TypeAdapter(DiscoverResult), 1: TypeAdapter(list[_HeldRow | _Row])}
_FURTHER_ROWS: TypeAdapter[Any] = TypeAdapter(list[_HeldRow | _Row] | None)


def check_answer(part: str, number: int, kind: str, answer: Any) -> None:
    """Raise `ValidationError` for an answer that does not fit its kind, `ValueError` for an unknown kind."""
    if part in (EVENTS, PROCESSES):
        from_fields(kind, answer)
        if kind == CANDIDATE:
            _check_candidate(answer)
    elif part == START:
        _AT_START.get(number, _FURTHER_ROWS).validate_python(answer)
    elif kind not in _BY_KIND:
        raise ValueError(f"kind: `{kind}` is none of {', '.join(_BY_KIND)}")
    else:
        _BY_KIND[kind].validate_python(answer)


_CANDIDATE: TypeAdapter[CandidateRecord] = TypeAdapter(CandidateRecord)


def _check_candidate(answer: Mapping[str, Any]) -> None:
    try:
        kept = _CANDIDATE.validate_python(asdict(CandidateRecord.of(answer)))
    except LookupError as error:
        raise ValueError(f"a candidate lacks {error}") from None
    if any(parent >= kept.index for parent in kept.parents):
        raise ValueError(f"candidate {kept.index} cannot come from {kept.parents}")
