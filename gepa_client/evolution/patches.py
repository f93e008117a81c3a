"""Unified diffs as text: what each line is, by file, and how much they change."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

LineKind = Literal["head", "at", "add", "del", "same"]
"""`head`: between the hunks, names of files and modes; `at`: a hunk's own line; `same`: context."""

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_GIT = "diff --git "
_BESIDE_HUNKS: dict[str, LineKind] = {"+": "add", "-": "del", "\\": "same"}
_BY_MARK: dict[str, LineKind] = {"+": "add", "-": "del", " ": "same", "": "same", "\\": "same"}


@dataclass(frozen=True)
class Line:
    """A line of a diff without its line feed."""

    kind: LineKind
    text: str


@dataclass(frozen=True)
class FileDiff:
    """A diff of one file; `name` as the diff writes it, which is not always a path that can be opened."""

    name: str
    lines: tuple[Line, ...]

    @property
    def added(self) -> int:
        """Lines that are new."""
        return sum(line.kind == "add" for line in self.lines)

    @property
    def removed(self) -> int:
        """Lines that are gone."""
        return sum(line.kind == "del" for line in self.lines)


def by_file(diff: str) -> list[FileDiff]:
    """Return the diff's files in order; text before the first one belongs to it."""
    found: list[list[Line]] = []
    for line in lines(diff):
        begins = line.kind == "head" and (line.text.startswith(_GIT) or _plain_beginning(line, found))
        if begins or not found:
            found.append([])
        found[-1].append(line)
    return [FileDiff(_name(part), tuple(part)) for part in found]


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


def _plain_beginning(line: Line, found: list[list[Line]]) -> bool:
    """Whether a diff that git did not write continues with its next file here."""
    return (
        line.text.startswith("--- ")
        and bool(found)
        and not found[-1][0].text.startswith(_GIT)
        and any(known.kind == "at" for known in found[-1])
    )


def _name(part: list[Line]) -> str:
    """Return the file's name after the change, before it if the file is deleted."""
    heads = [line.text for line in part if line.kind == "head"]
    for mark, prefix in (("+++ ", "b/"), ("--- ", "a/")):
        named = next((text.removeprefix(mark).rstrip("\t") for text in heads if text.startswith(mark)), "/dev/null")
        if named != "/dev/null":
            return named.removeprefix(prefix)
    header = next((text.removeprefix(_GIT) for text in heads if text.startswith(_GIT)), "")
    return header.rpartition(" b/")[2] or header
