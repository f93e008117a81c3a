"""Answers of entries that have a form of their own: of reflection models, comparisons of ties, and changes of code."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from protocol import ApplyMutationResult, Candidate, JsonValue, Usage
from protocol.code import ADDED_COMPONENTS, added_to, commit_of

CUT_OFF: Literal["length"] = "length"
"""The `finish_reason` of an answer that ended at the limit of tokens, as litellm reports it for every provider."""

HALF_CHARACTER: Literal["half_character"] = "half_character"
"""In its place, of an answer that holds half of a surrogate pair."""


class CompletionEntry(BaseModel):
    """An answer. `finish_reason`: what makes it no text to use; `text` has the escape of half a character."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    text: str
    finish_reason: Literal["length", "half_character"] | None = None

    @classmethod
    def of(cls, answer: str, *, cut_off: bool) -> Self:
        """Return the entry of a model's answer; `cut_off`: it ended at the limit of tokens."""
        text = answer.encode("utf-8", "backslashreplace").decode()
        return cls(text=text, finish_reason=CUT_OFF if cut_off else None if text == answer else HALF_CHARACTER)

    def to_json(self) -> JsonValue:
        """Return what the journal holds: the text alone if nothing is wrong with it."""
        return self.text if self.finish_reason is None else self.model_dump()

    @classmethod
    def from_json(cls, recorded: JsonValue) -> Self:
        """Return what `to_json` was called on."""
        return cls.model_validate(recorded) if isinstance(recorded, dict) else cls(text=str(recorded))


CompletionJson = str | CompletionEntry


class TiePlan(BaseModel):
    """Which candidates of the pool are compared, by index, on which fresh rows, by GEPA's ids.

    `searched`: requests of the search by then, none of which had these rows.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    candidates: list[int]
    rows: list[int]
    searched: int


class TiedCandidate(BaseModel):
    """A candidate's means: over the validation rows of the search, over the fresh rows, and over all of these rows."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    index: int
    validation: float
    fresh: float
    mean: float


class TieDecision(BaseModel):
    """The candidate with the highest mean over `validation_rows` and `rows` fresh ones; of equal ones the first.

    `validation_rows`: those of the search. `validation_left`: validation rows among the fresh ones.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    best: int
    validation_rows: int
    rows: int
    candidates: list[TiedCandidate]
    validation_left: int = 0


def part_of_ties(pool: int, index: int | None = None, *, dropped: int = 0) -> str:
    """Return the part of the journal that holds the plan and the decision for a pool of so many candidates.

    `index`: the part that holds this candidate's results. `dropped`: how many candidates of the pool users had dropped.
    """
    part = f"ties-{pool}-without-{dropped}" if dropped else f"ties-{pool}"
    return part if index is None else f"{part}-{index}"


def part_of_left_rows(index: int) -> str:
    """Return the part of the journal that holds a candidate's results on validation rows that the search left out.

    It is the same for any size of the pool: a resume that compares the candidate again has these results.
    """
    return f"ties-left-{index}"


class Rejection(BaseModel):
    """Why a mutation was rejected, as in the contract's `MutationRejected`. `diff`: the rejected change, if any."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    stage: str
    reason: str
    log_tail: str | None = None
    diff: str | None = None
    usage: Usage | None = None


class MutationEntry(BaseModel):
    """The answer of an entry of kind `mutation`: exactly one of `applied` and `rejected` is set.

    `request`: the change that was requested. `parent`, `other`: the commits it starts from; `other` only for a merge.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    kind: Literal["change_request", "merge"]
    request: str
    location: str | None = None
    parent: str
    other: str | None = None
    applied: ApplyMutationResult | None = None
    rejected: Rejection | None = None

    @model_validator(mode="after")
    def _one_outcome(self) -> Self:
        if (self.applied is None) == (self.rejected is None):
            raise ValueError("a mutation is either `applied` or `rejected`")
        return self


@dataclass(frozen=True)
class _Commit:
    parents: tuple[str, ...]
    bundle: str | None
    unused: frozenset[str]


class CommitGraph:
    """The commits that a run's mutations made: parents, bundles, and components they leave unused."""

    def __init__(self) -> None:
        self._made: dict[str, _Commit] = {}

    def add(self, entry: MutationEntry) -> None:
        """Add the commit of a recorded mutation, if it made one."""
        made = entry.applied
        if made is None:
            return
        parents = tuple(parent for parent in (entry.parent, entry.other) if parent is not None)
        unused = (self._unused_at(entry.parent) | set(made.components_removed)) - set(made.components_added)
        self._made.setdefault(made.commit, _Commit(parents, made.bundle, frozenset(unused)))

    def leading_to(self, commit: str) -> list[tuple[str, str]]:
        """Return (commit, bundle in base64) of all that lead to this one from the run's start, parents first.

        Empty if one of them has no bundle, or the run did not make the commit.
        """
        chain = self.bundles(commit)
        bundles = [(each, bundle) for each, bundle in chain if bundle is not None]
        return bundles if len(bundles) == len(chain) else []

    def bundles(self, commit: str) -> list[tuple[str, str | None]]:
        """Return the same for the commits that the run made, None for a bundle that no server gave."""
        return [(each, self._made[each].bundle) for each in self._made_up_to(commit)]

    def ancestry(self, candidate: Candidate) -> set[str]:
        """Return the commit of the candidate's code and its known ancestors."""
        commit = commit_of(candidate)
        if commit is None:
            return set()
        found = {commit}
        for each in self._made_up_to(commit):
            found |= {each, *self._made[each].parents}
        return found

    def unused(self, candidate: Candidate) -> frozenset[str]:
        """Return the components, added ones too, that the candidate's code no longer uses."""
        commit = commit_of(candidate)
        return self._unused_at(commit) if commit is not None else frozenset()

    def with_added(self, candidate: Candidate, components: Sequence[str]) -> list[str]:
        """Return the components with, in place of `added_components`, each added one that the code still uses."""
        if ADDED_COMPONENTS not in components:
            return list(components)
        unused = self.unused(candidate)
        others = [name for name in components if name != ADDED_COMPONENTS]
        return others + [name for name in added_to(candidate) if name not in unused]

    def _unused_at(self, commit: str) -> frozenset[str]:
        made = self._made.get(commit)
        return made.unused if made is not None else frozenset()

    def _made_up_to(self, commit: str) -> list[str]:
        """Return the commit and its ancestors that the run made, parents first."""
        order: list[str] = []
        seen: set[str] = set()
        waiting = [(commit, False)]
        while waiting:
            each, parents_done = waiting.pop()
            if parents_done:
                order.append(each)
            elif each in self._made and each not in seen:
                seen.add(each)
                waiting.append((each, True))
                waiting += [(parent, False) for parent in reversed(self._made[each].parents)]
        return order
