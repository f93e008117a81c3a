"""Where each part of a candidate's texts is from: the first candidate of its line that had it."""

from collections.abc import Mapping, Sequence

from gepa_client.evolution.names import component_texts
from gepa_client.evolution.patches import changed_words
from gepa_client.journal.entries import CandidateRecord

Spans = list[tuple[str, int]]
"""Parts of a text in order, with the index of the candidate that brought each."""

LONGEST_COMPARED = 400_000
"""Characters of two texts that are compared word by word; longer ones take minutes."""


def spans_of(candidates: Sequence[CandidateRecord], index: int) -> dict[str, Spans]:
    """Return the spans of each text of a candidate.

    A candidate brings the words that no parent has at their place; a merge takes each text from the parent that has it.
    """
    known: dict[int, dict[str, Spans]] = {}
    for each in _line(candidates, index):
        texts = component_texts(candidates[each].texts)
        parents = candidates[each].parents
        known[each] = {
            name: _spans(text, each, _nearest(name, text, parents, candidates, known)) for name, text in texts.items()
        }
    return known[index]


def _line(candidates: Sequence[CandidateRecord], index: int) -> list[int]:
    """Return the candidate and its ancestors, parents first."""
    found: set[int] = set()
    waiting = [index]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += candidates[each].parents
    return sorted(found)


def _nearest(
    name: str,
    text: str,
    parents: Sequence[int],
    candidates: Sequence[CandidateRecord],
    known: Mapping[int, Mapping[str, Spans]],
) -> Spans | None:
    """Return the spans of the parent's text: of a parent with the same text, else of the first one that has any."""
    having = [parent for parent in parents if name in known[parent]]
    same = [parent for parent in having if component_texts(candidates[parent].texts)[name] == text]
    chosen = (same or having)[:1]
    return known[chosen[0]][name] if chosen else None


def _spans(text: str, index: int, before: Spans | None) -> Spans:
    if before is None:
        return [(text, index)] if text else []
    old = "".join(part for part, _ in before)
    if old == text:
        return before
    if len(old) + len(text) > LONGEST_COMPARED:
        return [(text, index)]
    owners = [owner for part, owner in before for _ in part]
    found: Spans = []
    at = 0
    for words in changed_words(old, text):
        if words.kind == "del":
            at += len(words.text)
        elif words.kind == "add":
            _extend(found, words.text, [index] * len(words.text))
        else:
            _extend(found, words.text, owners[at : at + len(words.text)])
            at += len(words.text)
    return found


def _extend(found: Spans, text: str, owners: Sequence[int]) -> None:
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or owners[at] != owners[start]:
            if found and found[-1][1] == owners[start]:
                found[-1] = (found[-1][0] + text[start:at], owners[start])
            else:
                found.append((text[start:at], owners[start]))
            start = at
