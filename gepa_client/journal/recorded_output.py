"""Large parts of recorded results stay in the journal; what stands for them in memory says where they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from gepa_client.journal.buffer import LARGEST_HELD, Tape
from gepa_client.journal.journal import Journal, Slot

PARTS = ("output", "trajectory", "feedback")
"""Members of a result that may be of any size."""


@dataclass(frozen=True)
class RecordedOutput:
    """Stands for a member of a recorded result that is too large to be held in memory.

    `part`, `number`: of its entry in the journal of the run `run_id`.
    """

    run_id: str
    part: str
    number: int
    _tape: Tape = field(repr=False, compare=False)

    def result(self) -> dict[str, Any]:
        """The whole result, read from the journal."""
        result: dict[str, Any] = orjson.loads(self._tape.answer(self.part, self.number))
        return result

    def named(self) -> dict[str, Any]:
        """What a file holds in its place: the entry that has it. `gepa_client.load_result` reads it."""
        return {"in_journal": {"run": self.run_id, "part": self.part, "number": self.number}}


def held(journal: Journal, slot: Slot, result: dict[str, Any]) -> dict[str, Any]:
    """A recorded result as it is held in memory: each large part is replaced by a `RecordedOutput`."""
    if slot.size <= LARGEST_HELD or not journal.tape.keeps:
        return result
    stand_in = RecordedOutput(journal.run_id, journal.part, slot.number, journal.tape)
    return {
        key: stand_in if key in PARTS and len(orjson.dumps(value)) > LARGEST_HELD else value
        for key, value in result.items()
    }


def whole(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with all its parts."""
    stand_in = next((result[key] for key in PARTS if isinstance(result.get(key), RecordedOutput)), None)
    return dict(result) if stand_in is None else stand_in.result()


def named(value: object) -> Any:
    """A `RecordedOutput` as JSON, for `json.dumps(default=named)`."""
    if isinstance(value, RecordedOutput):
        return value.named()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
