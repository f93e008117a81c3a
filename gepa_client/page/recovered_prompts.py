"""The prompts of reflection, made again from the journal: it holds their digests, not their texts."""

import ast
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from gepa_client.analysis.proposals import REFLECTION
from gepa_client.journal.entries import COMPLETION, EVALUATE, SEARCH, Entry, StoredRun
from gepa_client.journal.history import entries
from gepa_client.journal.requests import digest_of, request_key
from gepa_client.journal.store import Store

if TYPE_CHECKING:
    from gepa_client.gepa.reflection_strategies import ConcurrentReflection

ANSWERS_WITHIN = 1_024
"""Entries after a proposal's beginning among which its answers are."""

LIMITED_HINTS = 6
"""Hints for a number of proposals of which it is tried whether they were still shown; earlier ones had ended."""


@dataclass(frozen=True)
class RecoveredPrompt:
    """A prompt, word by word. `hints`: those of users that it shows."""

    text: str
    hints: tuple[str, ...]


def recovered_prompts(store: Store, run: StoredRun, at: int, parent: Mapping[str, str]) -> dict[str, RecoveredPrompt]:
    """Return the prompts by component of the proposal that begins at this number, from a parent's texts.

    One is left out if another version, or other settings, made it: then no prompt has the digest that is recorded.
    """
    if run.config.get("reflection_lm") is None:
        return {}
    dataset = (orjson.loads(store.entries_at(run.id, SEARCH, [at])[0].answer)).get("dataset") or {}
    hints = list(_hints(store, run, at))
    reflection = _reflection(run.config)
    found: dict[str, RecoveredPrompt] = {}
    for name, answer in _answers(store, run.id, at):
        if name in found or not dataset.get(name) or name not in parent:
            continue
        for shown in hints:
            reflection.hints = lambda shown=shown: shown  # type: ignore[misc]
            prompt = reflection.prompt(parent, dataset, name)
            if request_key(COMPLETION, "", digest_of(prompt)).digest == answer.digest:
                found[name] = RecoveredPrompt(_as_text(prompt), shown)
                break
    return found


def _answers(store: Store, run_id: str, at: int) -> Iterator[tuple[str, Entry]]:
    """Yield the first answers after a number with their components, up to the next evaluation."""
    for entry in entries(store, run_id, SEARCH, at + 1, at + ANSWERS_WITHIN, largest=0):
        if entry.kind == EVALUATE:
            return
        read = REFLECTION.fullmatch(entry.about) if entry.kind == COMPLETION else None
        if read is not None and read["first"] is None:
            yield str(ast.literal_eval(read["name"])), entry


def _hints(store: Store, run: StoredRun, at: int) -> Iterator[tuple[str, ...]]:
    """Yield the hints that may have been in force at a number: those for a number of proposals may have ended."""
    given: list[tuple[str, bool]] = []
    for asked in sorted(
        (each for each in store.requests(run.id) if each.outcome == "taken" and each.number is not None),
        key=lambda each: each.number or 0,
    ):
        if (asked.number or 0) > at:
            break
        if asked.action.get("kind") == "clear_hints":
            given = []
        elif asked.action.get("kind") == "hint":
            given.append((str(asked.action.get("text")), asked.action.get("proposals") is not None))
    limited = [place for place, (_, ends) in enumerate(given) if ends]
    ended = set(limited[:-LIMITED_HINTS])
    for gone in itertools.chain.from_iterable(
        itertools.combinations(limited[-LIMITED_HINTS:], size) for size in range(min(len(limited), LIMITED_HINTS) + 1)
    ):
        yield tuple(text for place, (text, _) in enumerate(given) if place not in ended and place not in gone)


def _reflection(config: Mapping[str, Any]) -> "ConcurrentReflection":
    from gepa_client.gepa.answer_check import AnswerCheck  # a second of imports, with the next two
    from gepa_client.gepa.record_budget import RecordBudget
    from gepa_client.gepa.reflection_strategies import ConcurrentReflection

    return ConcurrentReflection(
        _no_model,
        config.get("reflection_prompt_template"),
        budget=RecordBudget(config.get("reflection_prompt_tokens")),
        shows_images=config.get("reflection_images") is not False,
        check=AnswerCheck(config.get("max_component_tokens")),
    )


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
