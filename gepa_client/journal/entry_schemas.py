"""What the answer of an entry is, by its kind: what a replay and the commands over stored runs rely on."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gepa_client.journal.entries import (
    COMPLETION,
    EVALUATE,
    FAILURE,
    MUTATION,
    OUTLINE,
    PROPOSAL,
    REFLECTIVE_DATASET,
    REFUSAL,
    ROLLOUT,
    SCORE,
    START,
    STOP,
)
from gepa_client.journal.mutation_entry import MutationEntry
from protocol import DiscoverResult, ExampleResult, JsonValue, MakeReflectiveDatasetResult


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Stop(_Strict):
    status: Literal["paused", "completed", "failed", "cancelled"]
    reason: str
    gracefully: bool


class RefusalEntry(_Strict):
    """What a gateway refused a sandbox, why, and how often in all that this entry tells of."""

    sandbox: str
    what: str
    reason: str
    times: int = Field(ge=1)


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


class _HeldRow(_Strict):
    id: str
    split: str
    data: JsonValue = None


_BY_KIND: dict[str, TypeAdapter[Any]] = {
    EVALUATE: TypeAdapter(ExampleResult),
    ROLLOUT: TypeAdapter(ExampleResult),
    SCORE: TypeAdapter(ExampleResult),
    REFLECTIVE_DATASET: TypeAdapter(MakeReflectiveDatasetResult),
    "adapter_state": TypeAdapter(MakeReflectiveDatasetResult),
    COMPLETION: TypeAdapter(str, config=ConfigDict(strict=True)),
    PROPOSAL: TypeAdapter(dict[str, str], config=ConfigDict(strict=True)),
    OUTLINE: TypeAdapter(str, config=ConfigDict(strict=True)),
    MUTATION: TypeAdapter(MutationEntry),
    STOP: TypeAdapter(_Stop),
    REFUSAL: TypeAdapter(RefusalEntry),
    FAILURE: TypeAdapter(_Failure),
    "finalize": TypeAdapter(str | None, config=ConfigDict(strict=True)),
}
_DISCOVERY = TypeAdapter(DiscoverResult)
_TRAINING = TypeAdapter(list[_HeldRow | _Row])
_ROWS = TypeAdapter(list[_HeldRow | _Row] | None)


def check_answer(part: str, number: int, kind: str, answer: Any) -> None:
    """Raises `ValidationError` for an answer that is none of its kind, `ValueError` for a kind nobody knows."""
    if part == START:
        _started_with(number).validate_python(answer)
    elif kind not in _BY_KIND:
        raise ValueError(f"kind: `{kind}` is none of {', '.join(_BY_KIND)}")
    else:
        _BY_KIND[kind].validate_python(answer)


def _started_with(number: int) -> TypeAdapter[Any]:
    if number == 0:
        return _DISCOVERY
    return _TRAINING if number == 1 else _ROWS
