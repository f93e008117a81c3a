"""A reflection model's answer as the journal has it: its text, and what makes it no text to use."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from protocol import JsonValue

CUT_OFF: Literal["length"] = "length"
"""The `finish_reason` of an answer that ended at the limit of tokens, as litellm reports it for every provider."""

HALF_CHARACTER: Literal["half_character"] = "half_character"
"""In its place, of an answer that holds half of a surrogate pair."""


class CompletionEntry(BaseModel):
    """An answer. `finish_reason`: what makes it no text to use; `text` has the escape of half a character."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    text: str
    finish_reason: Literal["length", "half_character"] | None = None

    @classmethod
    def of(cls, answer: str, *, cut_off: bool) -> Self:
        """Return the entry of a model's answer; `cut_off`: it ended at the limit of tokens."""
        text = answer.encode("utf-8", "backslashreplace").decode()
        return cls(text=text, finish_reason=CUT_OFF if cut_off else None if text == answer else HALF_CHARACTER)

    def to_json(self) -> JsonValue:
        """Return what the journal holds: the text alone if nothing is wrong with it."""
        return self.text if self.finish_reason is None else self.model_dump()

    @classmethod
    def from_json(cls, recorded: JsonValue) -> Self:
        """Return what `to_json` was called on."""
        return cls.model_validate(recorded) if isinstance(recorded, dict) else cls(text=str(recorded))


CompletionJson = str | CompletionEntry
