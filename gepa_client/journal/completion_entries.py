"""A reflection model's answer as the journal has it: its text, and what makes it no text to use."""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from protocol import JsonValue

CUT_OFF: Literal["length"] = "length"
"""The `finish_reason` of an answer that ended at the limit of tokens, as litellm reports it for every provider."""


class _Faulty(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: str
    finish_reason: Literal["length"] | None = None
    half_character: Literal[True] | None = None


CompletionJson = str | _Faulty
"""The text alone, or with what makes it no text to use."""


@dataclass(frozen=True)
class CompletionEntry:
    """An answer. `cut_off`: it ended at the limit of tokens.

    `half_character`: it held half of a surrogate pair, of which `text` has the escape.
    """

    text: str
    cut_off: bool = False
    half_character: bool = False

    @classmethod
    def of(cls, answer: str, *, cut_off: bool) -> Self:
        """Return the entry of a model's answer."""
        text = answer.encode("utf-8", "backslashreplace").decode()
        return cls(text, cut_off, text != answer)

    def to_json(self) -> JsonValue:
        """Return what the journal holds."""
        if not self.cut_off and not self.half_character:
            return self.text
        faulty = _Faulty(
            text=self.text,
            finish_reason=CUT_OFF if self.cut_off else None,
            half_character=True if self.half_character else None,
        )
        return faulty.model_dump(exclude_none=True)

    @classmethod
    def from_json(cls, recorded: JsonValue) -> Self:
        """Return what `to_json` was called on."""
        if not isinstance(recorded, dict):
            return cls(str(recorded))
        faulty = _Faulty.model_validate(recorded)
        return cls(faulty.text, faulty.finish_reason is not None, faulty.half_character is not None)
