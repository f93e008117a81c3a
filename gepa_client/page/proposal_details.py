"""What a proposal was made from, and what it changed, as the page gets it. The journal holds digests of its prompts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gepa_client.analysis.proposals import ROWS_SHOWN, ComparedRow, Excerpt, ProposalHistory, Recorded, excerpt
from gepa_client.evolution.candidate_names import component_texts
from gepa_client.journal.answer_entries import CompletionEntry
from gepa_client.journal.entries import COMPLETION, SEARCH, Attempt, StoredRun
from gepa_client.journal.history import entries_at
from gepa_client.journal.requests import digest_of, request_key
from gepa_client.journal.run_events import ProposalMade, TextAnswer
from gepa_client.journal.store import Store
from gepa_client.page.candidate_details import NotThere, part_of
from gepa_client.page.page_events import TEXT_SENT, Part, sent_text


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


def proposal(store: Store, run_id: str, at: int, *, all_rows: bool = False) -> ProposalShown:
    """Return the proposal that begins at this number. `all_rows`: of its minibatch, not the first ones only."""
    found = proposals(store, run_id, [at], None if all_rows else ROWS_SHOWN)
    if not found:
        raise NotThere(f"no proposal begins at {at}")
    return found[at]


def proposals(
    store: Store, run_id: str, numbers: Sequence[int], shown: int | None = ROWS_SHOWN
) -> dict[int, ProposalShown]:
    """Return several proposals of a run by where they begin. `shown`: how many rows of each; None for all."""
    run = store.run(run_id)
    history = ProposalHistory(store, run, store.candidates(run_id))
    wanted = [history.recorded[number] for number in numbers if number in history.recorded]
    return {one.number: _proposal(store, run, one, history, shown) for one in wanted}


def _proposal(
    store: Store, run: StoredRun, one: Recorded, history: ProposalHistory, shown: int | None
) -> ProposalShown:
    made, parent = one.made, history.parent(one)
    before, after = component_texts(parent), component_texts({**parent, **one.texts})
    compared = {
        name: TextsCompared(before=sent_text(before.get(name, "")), after=sent_text(text_))
        for name, text_ in after.items()
        if before.get(name, "") != text_
    }
    asked = {} if made is None else _recovered_prompts(store, run, made, parent)
    hints, answers = ([], []) if made is None else (made.hints, made.answers)
    read = history.answers([one.number, *(each.number for each in answers)])
    records = read[one.number].get("dataset") or {}
    last = {each.component: read[each.number] for each in answers if each.number in read}
    components = one.begun.components
    prompts = [
        PromptShown(
            component=name,
            model=run.config.get("reflection_lm"),
            prompt=part_of(asked[name]) if name in asked else None,
            hints=hints if name in asked else [],
            records=_records_shown(records.get(name, [])[:shown]),
            answer=excerpt(CompletionEntry.from_json(last[name]).text, TEXT_SENT) if name in last else None,
            usage=_usage(store, run.id, [each for each in answers if (each.component or components[0]) == name]),
        )
        for name in components
    ]
    return ProposalShown(size=len(one.begun.rows), rows=history.rows(one, shown), prompts=prompts, texts=compared)


def _usage(store: Store, run_id: str, answers: Sequence[TextAnswer]) -> list[AnswerUsage]:
    ends = {end.number: end for end in store.finished_at(run_id, SEARCH, [answer.number for answer in answers])}
    return [_usage_of(answer, ends.get(answer.number)) for answer in answers]


def _usage_of(answer: TextAnswer, end: Attempt | None) -> AnswerUsage:
    usage = (end.usage if end is not None else None) or {}
    return AnswerUsage(
        again=answer.again,
        input_tokens=_count(usage.get("input_tokens")),
        output_tokens=_count(usage.get("output_tokens")),
        cost_usd=usage.get("cost_usd"),
        seconds=end.seconds if end is not None else None,
    )


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _records_shown(records: Sequence[Mapping[str, Any]]) -> Excerpt | None:
    """Return the records that reflection read as one text, long values by their beginning."""
    blocks = []
    for record in records:
        values = {name: excerpt(value) or Excerpt("null") for name, value in record.items()}
        lines = (f"{name}: {value.text}{' ...' if value.omitted else ''}" for name, value in values.items())
        blocks.append("\n".join(lines))
    return sent_text("\n\n".join(blocks)) if blocks else None


def _recovered_prompts(store: Store, run: StoredRun, made: ProposalMade, parent: Mapping[str, str]) -> dict[str, str]:
    """Return the first prompts of a proposal from a parent's texts, word by word, by component.

    One is left out if another version, or other settings, made it: then no prompt has the digest that is recorded.
    """
    first = {each.component: each.number for each in made.answers if each.component in parent and each.again is None}
    if run.config.get("reflection_lm") is None or not first:
        return {}
    from gepa_client.gepa.answer_check import AnswerCheck  # a second of imports, with the next two
    from gepa_client.gepa.reflection_prompt import RecordBudget
    from gepa_client.gepa.reflection_strategies import ConcurrentReflection

    config = run.config
    reflection = ConcurrentReflection(
        _no_model,
        config.get("reflection_prompt_template"),
        budget=RecordBudget(config.get("reflection_prompt_tokens")),
        shows_images=config.get("reflection_images") is not False,
        check=AnswerCheck(config.get("max_component_tokens")),
    )
    reflection.hints = lambda: made.hints
    read = {each.number: each for each in entries_at(store, run.id, SEARCH, [made.proposal, *first.values()])}
    dataset = orjson.loads(read[made.proposal].answer).get("dataset") or {}
    found: dict[str, str] = {}
    for name, number in first.items():
        if name is not None and dataset.get(name):
            prompt = reflection.prompt(parent, dataset, name)
            if request_key(COMPLETION, "", digest_of(prompt)).digest == read[number].digest:
                found[name] = _as_text(prompt)
    return found


def _no_model(_prompt: object) -> str:
    raise AssertionError("nothing is asked")


def _as_text(prompt: str | Sequence[Mapping[str, Any]]) -> str:
    """Return a prompt as text: the parts of a message that are no text, such as images, by their type."""
    if isinstance(prompt, str):
        return prompt
    parts: list[str] = []
    for message in prompt:
        content = message.get("content")
        for part in content if isinstance(content, list) else [{"text": content}]:
            shown = part.get("text")
            parts.append(shown if isinstance(shown, str) else f"[{part.get('type') or json.dumps(part)[:80]}]")
    return "\n\n".join(parts)
