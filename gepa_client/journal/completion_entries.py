"""A reflection model's answer as the journal has it: its text, and what makes it no text to use."""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from protocol import JsonValue

CUT_OFF: Literal["length"] = "length"
"""The `finish_reason` of an answer that ended at the limit of tokens, as litellm reports it for every provider."""

HALF_CHARACTER: Literal["half_character"] = "half_character"
"""In its place, of an answer that holds half of a surrogate pair."""


class _Faulty(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: str
    finish_reason: Literal["length", "half_character"]


CompletionJson = str | _Faulty
"""The text alone, or with what makes it no text to use."""


@dataclass(frozen=True)
class CompletionEntry:
    """An answer. `cut_off`: it ended at the limit of tokens.

    `half_character`: it did not, but held half of a surrogate pair, of which `text` has the escape.
    """

    text: str
    cut_off: bool = False
    half_character: bool = False

    @classmethod
    def of(cls, answer: str, *, cut_off: bool) -> Self:
        """Return the entry of a model's answer."""
        text = answer.encode("utf-8", "backslashreplace").decode()
        return cls(text, cut_off, not cut_off and text != answer)

    def to_json(self) -> JsonValue:
        """Return what the journal holds."""
        if not self.cut_off and not self.half_character:
            return self.text
        return _Faulty(text=self.text, finish_reason=CUT_OFF if self.cut_off else HALF_CHARACTER).model_dump()

    @classmethod
    def from_json(cls, recorded: JsonValue) -> Self:
        """Return what `to_json` was called on."""
        if not isinstance(recorded, dict):
            return cls(str(recorded))
        faulty = _Faulty.model_validate(recorded)
        return cls(faulty.text, faulty.finish_reason == CUT_OFF, faulty.finish_reason == HALF_CHARACTER)
