"""Why the best candidate is better, and which candidate brought each part of its texts, as the page gets it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gepa_client.analysis.explanation import Explanation, explain
from gepa_client.analysis.proposals import ComparedRow
from gepa_client.analysis.ties import ancestry
from gepa_client.evolution.names import component_texts
from gepa_client.evolution.patches import changed_words
from gepa_client.journal.entries import CandidateRecord
from gepa_client.journal.history import recorded_events
from gepa_client.journal.run_events import CandidateFound
from gepa_client.journal.store import Store
from gepa_client.page.page_answers import Origin, ProposalShown, Provenance, ProvenanceSpan
from gepa_client.page.page_fact import NotThere, candidate_of
from gepa_client.page.proposal_answers import proposals


def explanation(store: Store, run_id: str, until: int | None) -> Explanation:
    """Return why the best candidate of a run is better than the seed. `until`: before this number of the journal."""
    found = explain(store, store.run(run_id), until)
    if found is None:
        raise NotThere("the seed has not been scored")
    return found


def provenance(
    store: Store, run_id: str, candidate: int, known: Mapping[int, ProposalShown] = MappingProxyType({})
) -> Provenance:
    """Return where the texts of a candidate are from. `known`: proposals that need not be read, by where they begin."""
    candidate_of(store, run_id, candidate)
    candidates = store.candidates(run_id)
    found = _spans_of(candidates, candidate)
    used = sorted({index for spans in found.values() for _, index in spans})
    numbers = {
        event.index: event.proposal
        for event in recorded_events(store, run_id)
        if isinstance(event, CandidateFound) and event.proposal is not None and event.index in used
    }
    made = proposals(store, run_id, [number for number in numbers.values() if number not in known]) | {**known}
    components = {
        name: [ProvenanceSpan(text=part, candidate=index) for part, index in spans] for name, spans in found.items()
    }
    origins = [_origin(candidates, index, numbers.get(index), made) for index in used]
    return Provenance(components=components, origins=origins)


def _origin(
    candidates: Sequence[CandidateRecord], index: int, number: int | None, made: Mapping[int, ProposalShown]
) -> Origin:
    kept = candidates[index]
    rows = [row.row for row in made[number].rows if _improved(row)] if number is not None else []
    worth: str | None = None
    if kept.parents:
        parent = max((candidates[each] for each in kept.parents), key=lambda each: each.score)
        worth = f"score {parent.score:.4g} -> {kept.score:.4g}"
    return Origin(candidate=index, proposal=number, rows=rows, worth=worth)


def _improved(row: ComparedRow) -> bool:
    """Whether the parent failed on a row of the minibatch, or the proposal scored more."""
    before, after = row.before, row.after
    if before is None or before.status != "ok":
        return True
    return after is not None and after.status == "ok" and after.score > before.score


_Spans = list[tuple[str, int]]
"""Parts of a text in order, with the index of the candidate that brought each."""

_LONGEST_COMPARED = 400_000
"""Characters of two texts that are compared word by word; longer ones take minutes."""


def _spans_of(candidates: Sequence[CandidateRecord], index: int) -> dict[str, _Spans]:
    """Return the spans of each text of a candidate.

    A candidate brings the words that no parent has at their place; a merge takes each text from the parent that has it.
    """
    known: dict[int, dict[str, _Spans]] = {}
    for each in sorted(ancestry(candidates, candidates[index])):
        texts = component_texts(candidates[each].texts)
        parents = candidates[each].parents
        known[each] = {
            name: _spans(text, each, _nearest(name, text, parents, candidates, known)) for name, text in texts.items()
        }
    return known[index]


def _nearest(
    name: str,
    text: str,
    parents: Sequence[int],
    candidates: Sequence[CandidateRecord],
    known: Mapping[int, Mapping[str, _Spans]],
) -> _Spans | None:
    """Return the spans of the parent's text: of a parent with the same text, else of the first one that has any."""
    having = [parent for parent in parents if name in known[parent]]
    same = [parent for parent in having if component_texts(candidates[parent].texts)[name] == text]
    chosen = (same or having)[:1]
    return known[chosen[0]][name] if chosen else None


def _spans(text: str, index: int, before: _Spans | None) -> _Spans:
    if before is None:
        return [(text, index)] if text else []
    old = "".join(part for part, _ in before)
    if old == text:
        return before
    if len(old) + len(text) > _LONGEST_COMPARED:
        return [(text, index)]
    owners = [owner for part, owner in before for _ in part]
    found: _Spans = []
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


def _extend(found: _Spans, text: str, owners: Sequence[int]) -> None:
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or owners[at] != owners[start]:
            if found and found[-1][1] == owners[start]:
                found[-1] = (found[-1][0] + text[start:at], owners[start])
            else:
                found.append((text[start:at], owners[start]))
            start = at
