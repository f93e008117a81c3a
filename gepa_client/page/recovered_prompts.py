"""The prompts of reflection, made again from the journal: it holds their digests, not their texts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gepa_client.journal.entries import COMPLETION, SEARCH, StoredRun
from gepa_client.journal.history import entries_at
from gepa_client.journal.requests import digest_of, request_key
from gepa_client.journal.run_events import ProposalMade
from gepa_client.journal.store import Store


def recovered_prompts(store: Store, run: StoredRun, made: ProposalMade, parent: Mapping[str, str]) -> dict[str, str]:
    """Return the first prompts of a proposal from a parent's texts, word by word, by component.

    One is left out if another version, or other settings, made it: then no prompt has the digest that is recorded.
    """
    first = {each.component: each.number for each in made.answers if each.component in parent and each.again is None}
    if run.config.get("reflection_lm") is None or not first:
        return {}
    from gepa_client.gepa.answer_check import AnswerCheck  # a second of imports, with the next two
    from gepa_client.gepa.record_budget import RecordBudget
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
