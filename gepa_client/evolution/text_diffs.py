"""Differences of texts: unified diffs by line, and the words in which two texts differ."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

LineKind = Literal["head", "at", "add", "del", "same"]
"""`head`: between the hunks, names of files and modes; `at`: a hunk's own line; `same`: context."""

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_BESIDE_HUNKS: dict[str, LineKind] = {"+": "add", "-": "del", "\\": "same"}
_BY_MARK: dict[str, LineKind] = {"+": "add", "-": "del", " ": "same", "": "same", "\\": "same"}


@dataclass(frozen=True)
class Line:
    """A line of a diff without its line feed."""

    kind: LineKind
    text: str


def lines(diff: str) -> Iterator[Line]:
    """Yield each line with its kind. A hunk's numbers define its end: a removed `-- x` looks like a file's name."""
    before = after = 0
    for text in diff.removesuffix("\n").split("\n") if diff else ():
        hunk = _HUNK.match(text)
        if (before > 0 or after > 0) and (kind := _BY_MARK.get(text[:1])) is not None:
            if text[:1] != "\\":
                before -= kind != "add"
                after -= kind != "del"
            yield Line(kind, text)
        elif hunk is not None:
            before, after = (int(count) if count is not None else 1 for count in hunk.groups())
            yield Line("at", text)
        else:
            before = after = 0
            yield Line(_outside(text), text)


def _outside(text: str) -> LineKind:
    """Return the kind of a line outside hunks: usually a header; the rest of a truncated or hand-written diff."""
    if text.startswith(("+++ ", "--- ")):
        return "head"
    return _BESIDE_HUNKS.get(text[:1], "head")


def totals(diff: str) -> tuple[int, int]:
    """Lines added and removed, over all files."""
    kinds = [line.kind for line in lines(diff)]
    return kinds.count("add"), kinds.count("del")


WordKind = Literal["same", "add", "del"]

_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_COMPARED = 4_000_000
"""Pairs of words of one changed place that are compared; a larger place counts as replaced."""

_ALIKE = 0.3
"""The share of the shorter text of a changed place that must be kept; with less, it is easier to read as replaced."""


@dataclass(frozen=True)
class Words:
    """Consecutive words that are in both texts, or only in the new one (`add`) or the old one (`del`)."""

    kind: WordKind
    text: str


def changed_words(before: str, after: str) -> list[Words]:
    """Return both texts as one sequence of words; without `add`s it is the old text, without `del`s the new one."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    found: list[Words] = []
    for kind, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new).get_opcodes():
        was, now = "".join(old[start:end]), "".join(new[new_start:new_end])
        found += [Words("same", now)] if kind == "equal" else _changed_place(was, now)
    return _joined(found)


def text_diff(before: str, after: str) -> list[str]:
    """Return the lines of a unified diff, without its two lines of file names; empty if nothing changed."""
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]


def _changed_place(before: str, after: str) -> list[Words]:
    replaced = [Words("del", before), Words("add", after)]
    old, new = _WORD.findall(before), _WORD.findall(after)
    if not old or not new or len(old) * len(new) > _COMPARED:
        return replaced
    opcodes = difflib.SequenceMatcher(None, old, new).get_opcodes()
    kept = sum(_letters("".join(old[start:end])) for kind, start, end, *_ in opcodes if kind == "equal")
    if kept < _ALIKE * min(_letters(before), _letters(after)):
        return replaced
    found: list[Words] = []
    was = now = ""
    for kind, start, end, new_start, new_end in opcodes:
        gone, come = "".join(old[start:end]), "".join(new[new_start:new_end])
        if kind != "equal" or (was and now and not come.strip()):  # words that only share a space are one change
            was, now = was + gone, now + come
        else:
            found += [Words("del", was), Words("add", now), Words("same", come)]
            was = now = ""
    return [*found, Words("del", was), Words("add", now)]


def _letters(text: str) -> int:
    """Return the number of characters that are not white space."""
    return sum(map(len, text.split()))


def _joined(words: Sequence[Words]) -> list[Words]:
    """Return the words with neighbours of one kind joined, and without empty ones."""
    found: list[Words] = []
    for piece in words:
        if found and found[-1].kind == piece.kind:
            found[-1] = Words(piece.kind, found[-1].text + piece.text)
        elif piece.text:
            found.append(piece)
    return found
