"""A reflection model's answer as the journal has it: its text, and whether it ended at the limit of tokens."""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from protocol import JsonValue

CUT_OFF: Literal["length"] = "length"
"""The `finish_reason` of an answer that ended at the limit of tokens, as litellm reports it for every provider."""


class _CutOff(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: str
    finish_reason: Literal["length"]


CompletionJson = str | _CutOff
"""The text, as every version has recorded it; one that was cut off is recorded with its `finish_reason`."""


@dataclass(frozen=True)
class CompletionEntry:
    """An answer. `cut_off`: it ended at the limit of tokens."""

    text: str
    cut_off: bool = False

    def to_json(self) -> JsonValue:
        """Return what the journal holds."""
        return _CutOff(text=self.text, finish_reason=CUT_OFF).model_dump() if self.cut_off else self.text

    @classmethod
    def from_json(cls, recorded: JsonValue) -> Self:
        """Return what `to_json` was called on."""
        if isinstance(recorded, dict):
            return cls(_CutOff.model_validate(recorded).text, cut_off=True)
        return cls(str(recorded))
