"""What events and answers of the page have in common: texts and JSON values, by their beginning, and further parts."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from gepa_client.analysis.proposals import Excerpt, as_text
from gepa_client.evolution.names import component_texts
from gepa_client.journal.entries import CandidateRecord
from gepa_client.journal.store import Store

TEXT_SENT = 20_000
"""Characters of a text that events hold; of a longer one they hold the first `TEXT_BEGINNING`."""

TEXT_BEGINNING = 2_000


_PART_SENT = 200_000
"""Characters of a part of a text that one answer holds."""


class Part(BaseModel):
    """An event or an answer, or a part of one."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", defer_build=True)


def sent_text(text: str) -> Excerpt:
    """Return a text as events hold it."""
    if len(text) <= TEXT_SENT:
        return Excerpt(text=text)
    return Excerpt(text=text[:TEXT_BEGINNING], omitted=len(text) - TEXT_BEGINNING)


class NotThere(Exception):
    """What was asked for does not exist; the message names it."""


def text_part(store: Store, run_id: str, candidate: int, component: str, start: int) -> Excerpt:
    """Return a component of a candidate from the character `start` on."""
    texts = component_texts(candidate_of(store, run_id, candidate).texts)
    if component not in texts:
        raise NotThere(f"candidate {candidate} has no component {component!r}; it has {', '.join(texts)}")
    return part_of(texts[component], start)


def part_of(whole: str, start: int = 0) -> Excerpt:
    """Return a text from a character on."""
    part = whole[start : start + _PART_SENT]
    return Excerpt(text=part, omitted=max(0, len(whole) - start - len(part)))


def candidate_of(store: Store, run_id: str, index: int) -> CandidateRecord:
    """Return a candidate of the pool. Raises `NotThere`."""
    found = [kept for kept in store.candidates(run_id, index) if kept.index == index] if index >= 0 else []
    if not found:
        raise NotThere(f"the run has no candidate {index}")
    return found[0]


def shown(value: Any) -> Excerpt | None:
    """Return a value as text; None for null."""
    return None if value is None else sent_text(as_text(value))
