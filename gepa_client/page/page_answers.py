"""The forms of what a page loads of a run when it is asked for, and its texts, which are sent in parts."""

from gepa_client.analysis.proposals import ComparedRow, Excerpt, RowResult
from gepa_client.evolution.names import component_texts
from gepa_client.journal.entries import CandidateRecord
from gepa_client.journal.store import Store
from gepa_client.page.page_events import Part

_PART_SENT = 200_000
"""Characters of a part of a text that one answer holds."""


class StepShown(Part):
    """A step of an example's run."""

    name: str
    component: str | None
    input: Excerpt | None
    output: Excerpt | None
    error: Excerpt | None
    seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    steps: list["StepShown"]


class Cell(Part):
    """A candidate on a validation row. `no_steps`: why there are none. `seconds`, tokens, cost: of the attempt."""

    row: str
    input: Excerpt | None
    result: RowResult | None
    number: int | None
    seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    steps: list[StepShown]
    no_steps: str | None


class AnswerUsage(Part):
    """What an answer took. `again`: why the answer before it could not be used; None for the first one."""

    again: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    seconds: float | None


class PromptShown(Part):
    """A prompt for new texts and its answer. `model`: None if the program proposed.

    `prompt`: the whole prompt, None if it cannot be made again from the journal. `hints`: those of users in it.
    `records`: what it was made from, a part of them if they are many or long. `usage`: of all answers to it; one that
    has the texts of several components is at the first of them.
    """

    component: str | None
    model: str | None
    prompt: Excerpt | None
    hints: list[str]
    records: Excerpt | None
    answer: Excerpt | None
    usage: list[AnswerUsage]


class TextsCompared(Part):
    """A component before and after."""

    before: Excerpt
    after: Excerpt


class ProposalShown(Part):
    """What a proposal was made from, and what it changed, by component.

    `rows`: of its minibatch of `size` rows, the first ones unless all were asked for, as the `records` of its prompts.
    """

    size: int
    rows: tuple[ComparedRow, ...]
    prompts: list[PromptShown]
    texts: dict[str, TextsCompared]


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
