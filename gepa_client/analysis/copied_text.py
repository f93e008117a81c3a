"""What texts copy verbatim from rows, and what the candidates of a recorded run copied from its training rows.

Found in time linear in the words of both; case and punctuation are ignored.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gepa_client.evolution.candidate_names import component_texts
from gepa_client.journal.history import selection_rows
from gepa_client.journal.run_events import CopiedExample, CopiedExamples
from gepa_client.journal.store import Store

LEAST_WORDS = 8
"""Words in a row that a copy has; one of a row's whole text may have fewer."""

LEAST_WHOLE_WORDS = 4
"""Words of a row's text below which it is not looked for: short answers and labels occur in every prompt."""

NEAR_GRAM, NEAR_SHARE = 3, 0.6
"""A text is nearly copied if this share of its runs of so many words occurs in another: one word in ten may differ."""

PLACES = 16
"""Places of a repeated run of words that are compared, the first ones."""

_COPIES_LISTED = 100
"""Copies that are listed, the longest ones; all are counted."""

_ROWS_LISTED = 5
_TEXT_SHOWN = 200
"""Rows of a copy that are named, and characters of its text that are shown."""

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
        for words in map(_words, strings_in(content))
        if len(words) >= LEAST_WHOLE_WORDS and not new(size := _size(words)).isdisjoint(_grams(words, size))
    ]
    return [text.copies(shared, new) for text in split]


def nearly_copied_texts(text: str, rows: Iterable[tuple[str, Any]], known: Iterable[str] = ()) -> list[CopiedText]:
    """Return the texts of rows, of at least `LEAST_WORDS` words, that this text contains with a few words changed.

    `NEAR_SHARE` of the runs of `NEAR_GRAM` words of a row's text are among those of as many words of the text; each row
    is found once. `words`: that both have. `rows`, `known`: as in `copied_texts`.
    """
    split = _Text(text)
    old = {gram for each in known for gram in _grams(_words(each), NEAR_GRAM)}
    places: defaultdict[_Gram, list[int]] = defaultdict(list)
    for at, gram in enumerate(_grams(split.words, NEAR_GRAM)):
        if gram not in old and len(places[gram]) < PLACES:
            places[gram].append(at)
    found = []
    for row_id, content in rows:
        for words in map(_words, strings_in(content)):
            grams = list(_grams(words, NEAR_GRAM))
            if len(words) < LEAST_WORDS or sum(gram in places for gram in grams) < NEAR_SHARE * len(grams):
                continue
            if (copy := split.near(row_id, grams, places)) is not None:
                found.append(copy)
                break
    return found


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

    def near(self, row_id: str, grams: Sequence[_Gram], places: Mapping[_Gram, list[int]]) -> CopiedText | None:
        """Return the part of the text, as long as the row's, that has most of its grams; None if it has too few."""
        shared = sorted({at for gram in set(grams) for at in places.get(gram, ())})
        best, last = 0, -1
        low = 0
        for high, at in enumerate(shared):
            while at - shared[low] >= len(grams):
                low += 1
            if high - low + 1 > best:
                best, first, last = high - low + 1, shared[low], at
        if best < NEAR_SHARE * len(grams):
            return None
        covered = {at + step for at in shared if first <= at <= last for step in range(NEAR_GRAM)}
        return CopiedText(self._starts[first], self._ends[last + NEAR_GRAM - 1], len(covered), (row_id,))

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


def strings_in(content: Any) -> Iterator[str]:
    """Yield every string in a JSON value but the names of members."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for part in content.values():
            yield from strings_in(part)
    elif isinstance(content, list | tuple):
        for part in content:
            yield from strings_in(part)


def copied_examples(store: Store, run_id: str) -> CopiedExamples | None:
    """Return the copies that candidates have and the seed has not, each by the first candidate with it; None if none.

    Rows that the server keeps to itself are not in the store, and not looked for.
    """
    candidates = store.candidates(run_id)
    texts = [(kept.index, name, text) for kept in candidates[1:] for name, text in component_texts(kept.texts).items()]
    distinct = list(dict.fromkeys(text for *_, text in texts))
    if not distinct:
        return None
    rows = ((row.id, row.data) for row in selection_rows(store, run_id).get("train", []))
    known = component_texts(candidates[0].texts).values()
    found = dict(zip(distinct, copied_texts(distinct, rows, known), strict=True))
    copies: dict[tuple[str, str], CopiedExample] = {}
    for index, name, text in texts:
        for copy in found[text]:
            copied = text[copy.start : copy.end]
            copies.setdefault(
                (name, copied),
                CopiedExample(
                    candidate=index,
                    component=name,
                    words=copy.words,
                    text=copied[:_TEXT_SHOWN],
                    rows=list(copy.rows[:_ROWS_LISTED]),
                    row_count=len(copy.rows),
                ),
            )
    if not copies:
        return None
    longest = sorted(copies.values(), key=lambda copy: (-copy.words, copy.candidate))
    return CopiedExamples(
        count=len(longest),
        candidates=sorted({index for index, _, text in texts if found[text]}),
        copies=longest[:_COPIES_LISTED],
    )
