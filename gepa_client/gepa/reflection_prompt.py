"""Prompts of reflection: a template with its marks replaced, records as GEPA shows them, images attached.

Records are fitted into a budget of tokens: the same ones always give the same result.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gepa.image import Image
from gepa.strategies.instruction_proposal import InstructionProposalSignature

Prompt = str | list[dict[str, Any]]

TEXT, RECORDS = "<curr_param>", "<side_info>"
"""GEPA's marks of the present text and of the records."""

BYTES_PER_TOKEN = 4
"""The estimate of a text's tokens: its bytes in UTF-8, divided by this."""

IMAGE_TOKENS = 1_000
"""What an image counts for."""

LEAST_RECORD_TOKENS = 250
"""Records are left out if the prompt has less room than this for each."""

_SHORTEST_PART = 100
"""Bytes for each part of a value below which the value is cut as a whole, as JSON."""

_MARK_BYTES = 50
_HEADING_BYTES = 8

Record = Mapping[str, Any]


@dataclass(frozen=True)
class FittedRecords:
    """`records`: those that fit, in their order. Of all, `shortened` were cut and `left_out` are missing at the end.

    `tokens`: the estimate of what is missing. `setting`: what to raise so that less is; None if nothing is missing.
    """

    records: Sequence[Record]
    shortened: int = 0
    left_out: int = 0
    tokens: int = 0
    setting: str | None = None


@dataclass(frozen=True)
class RecordBudget:
    """Tokens of a whole prompt; None for no limit."""

    prompt_tokens: int | None = None

    def fit(self, records: Sequence[Record], others: str) -> FittedRecords:
        """Return the records that fit into a prompt beside `others`, the rest of its text.

        The longest texts are cut in the middle, with a line that states how much is left out; records are left out,
        the last first, only if a prompt has less than `LEAST_RECORD_TOKENS` for each.
        """
        if self.prompt_tokens is None:
            return FittedRecords(records)
        sizes = [_size(record) for record in records]
        most = max(sizes, default=0)
        kept, least = len(records), LEAST_RECORD_TOKENS * BYTES_PER_TOKEN
        room = self.prompt_tokens * BYTES_PER_TOKEN - _size(others)
        while kept > 1 and sum(min(size, least) for size in sizes[:kept]) > room:
            kept -= 1
        level = min(most, max(_level(sizes[:kept], room), least))
        shown = [_cut_record(record, level) for record in records[:kept]]
        shortened = sum(size > level for size in sizes[:kept])
        if not shortened and kept == len(records):
            return FittedRecords(records)
        missing = sum(sizes) - sum(map(_size, shown))
        return FittedRecords(
            shown,
            shortened,
            len(records) - kept,
            max(1, missing // BYTES_PER_TOKEN),
            "reflection_prompt_tokens",
        )


def tokens_of(text: str) -> int:
    """Return the estimate of a text's tokens."""
    return -(-_size(text) // BYTES_PER_TOKEN)


def _cut_record(record: Record, room: int) -> Record:
    cut = _cut(record, room)
    return cut if isinstance(cut, Mapping) else {"Record": cut}


def cut_middle(text: str, characters: int) -> str:
    """Return the text with its middle replaced by a line that states how many characters are left out."""
    if len(text) <= characters:
        return text
    end = characters // 2
    left_out = f"… {len(text) - characters:,} characters left out …"
    return f"{text[: characters - end]}\n{left_out}\n{text[len(text) - end :]}"


def _level(sizes: Sequence[int], room: int) -> int:
    """Return the largest size to which larger ones must be cut so that all fit together; the largest if they do."""
    for at, size in enumerate(ordered := sorted(sizes)):
        if size * (len(ordered) - at) > room:
            return max(0, room // (len(ordered) - at))
        room -= size
    return ordered[-1] if ordered else 0


def _size(value: Any) -> int:
    """Return the bytes that a value takes in a prompt, headings included."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    if isinstance(value, Image):
        return IMAGE_TOKENS * BYTES_PER_TOKEN
    if isinstance(value, Mapping):
        return sum(_HEADING_BYTES + _size(str(name)) + _size(part) for name, part in value.items())
    if isinstance(value, list | tuple):
        return sum(2 * _HEADING_BYTES + _size(part) for part in value)
    return len(str(value))


def _cut(value: Any, room: int) -> Any:
    """Return the value cut to so many bytes: the longest parts first, each text in its middle.

    Images stay, except in a value of so many parts that it is cut as a whole.
    """
    size = _size(value)
    if size <= room or isinstance(value, Image):
        return value
    if isinstance(value, Mapping | list | tuple):
        parts = list(value.values()) if isinstance(value, Mapping) else list(value)
        sizes = [_size(part) for part in parts]
        left = room - (size - sum(sizes))
        if left >= _SHORTEST_PART * len(parts):
            level = _level(sizes, left)
            cut = [_cut(part, level) for part in parts]
            return dict(zip(value, cut, strict=True)) if isinstance(value, Mapping) else cut
        value = json.dumps(value, ensure_ascii=False, default=lambda _: "(image)")
    text = str(value)
    return cut_middle(text, len(text) * max(0, room - _MARK_BYTES) // max(1, _size(text)))


def filled(template: str, records: Sequence[Mapping[str, Any]], given: Mapping[str, str]) -> Prompt:
    """Return the template with the records and other texts in place of their marks; chat messages if it has images.

    `given`: texts by their marks. All marks are replaced in one pass, as texts may hold marks too.

    Raises:
        TypeError: the records are no list of objects.
    """
    shown = InstructionProposalSignature.prompt_renderer(
        {"current_instruction_doc": "", "dataset_with_feedback": records, "prompt_template": TEXT + RECORDS}
    )
    text, images = (shown, []) if isinstance(shown, str) else (shown[0]["content"][0]["text"], shown[0]["content"][1:])
    texts = {**given, RECORDS: text}
    prompt = re.sub("|".join(map(re.escape, texts)), lambda mark: texts[mark[0]], template)
    return [{"role": "user", "content": [{"type": "text", "text": prompt}, *images]}] if images else prompt
