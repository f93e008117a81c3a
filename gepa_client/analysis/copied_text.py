"""Find what a text copies verbatim from rows, in time linear in the words of both; case and punctuation are ignored."""

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEAST_WORDS = 8
"""Words in a row that a copy has; one of a row's whole text may have fewer."""

LEAST_WHOLE_WORDS = 4
"""Words of a row's text below which it is not looked for: short answers and labels occur in every prompt."""

_UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts that put no space between words, such as Chinese and Thai: each of their characters counts as a word."""

_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")

_Gram = tuple[str, ...]


@dataclass(frozen=True)
class CopiedText:
    """A part of a text, from `start` to `end` in characters, of `words` words, that these `rows` contain."""

    start: int
    end: int
    words: int
    rows: tuple[str, ...]


def copied_texts(
    texts: Sequence[str], rows: Iterable[tuple[str, Any]], known: Iterable[str] = ()
) -> list[list[CopiedText]]:
    """Return the copies in each text, the longest first: at least `LEAST_WORDS` words, or the whole text of a row.

    Every `LEAST_WORDS` words in a row that a text shares are part of a copy.

    `rows`: ids and contents, any JSON values, of which every string is looked for by itself; they are read once.
    `known`: texts from which nothing counts as copied.
    """
    split = [_Text(text) for text in texts]
    old = [_words(text) for text in known]

    @functools.cache
    def new(size: int) -> set[_Gram]:
        grams = {gram for text in split for gram in _grams(text.words, size)}
        return grams.difference(*(_grams(words, size) for words in old))

    shared = [
        (row_id, words)
        for row_id, content in rows
        for words in map(_words, _strings(content))
        if len(words) >= LEAST_WHOLE_WORDS and not new(size := _size(words)).isdisjoint(_grams(words, size))
    ]
    return [text.copies(shared, new) for text in split]


class _Text:
    """The words of a text, and where they are."""

    def __init__(self, text: str) -> None:
        found = list(_WORD.finditer(text))
        self.words = [match[0].casefold() for match in found]
        self._starts = [match.start() for match in found]
        self._ends = [match.end() for match in found]

    def copies(self, rows: Iterable[tuple[str, list[str]]], new: Callable[[int], set[_Gram]]) -> list[CopiedText]:
        """Return the copies from rows, given as words; those that begin with one of the `new` grams of a size."""
        first: dict[int, dict[_Gram, int]] = {}
        found: defaultdict[tuple[int, int], dict[str, None]] = defaultdict(dict)
        for row_id, words in rows:
            size = _size(words)
            if size not in first:
                first[size] = {}
                for at, gram in enumerate(_grams(self.words, size)):
                    if gram in new(size):
                        first[size].setdefault(gram, at)
            for start, length in self._runs(words, first[size], size):
                found[start, length][row_id] = None
        copies = [
            CopiedText(self._starts[start], self._ends[start + length - 1], length, tuple(ids))
            for (start, length), ids in found.items()
        ]
        return sorted(copies, key=lambda copy: (-copy.words, copy.start))

    def _runs(self, words: Sequence[str], first: Mapping[_Gram, int], size: int) -> Iterator[tuple[int, int]]:
        """Yield the place and the length of each run of words that both have, as often as it begins anew."""
        at = 0
        while at + size <= len(words):
            start = first.get(tuple(words[at : at + size]))
            if start is None:
                at += 1
                continue
            length = size
            while words[at + length : at + length + 1] == self.words[start + length : start + length + 1] != []:
                length += 1
            yield start, length
            at += length - size + 1


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def _size(words: Sequence[str]) -> int:
    """Return the words in a row that a copy from this text has at least."""
    return min(len(words), LEAST_WORDS)


def _grams(words: Sequence[str], size: int) -> Iterator[_Gram]:
    return zip(*(words[at:] for at in range(size)), strict=False)


def _strings(content: Any) -> Iterator[str]:
    """Yield every string in a JSON value but the names of members."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for part in content.values():
            yield from _strings(part)
    elif isinstance(content, list | tuple):
        for part in content:
            yield from _strings(part)
