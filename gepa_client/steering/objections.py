"""Why a request of a user cannot be taken: checked when it is made, and again where the run takes it."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from gepa_client.journal.steer_entries import AnyAction, Drop, Hint, Pin, Propose, SetBudget, Withdraw
from protocol.code import CODE_COMPONENTS


@dataclass(frozen=True)
class RequestContext:
    """What requests are checked against.

    `candidates`: texts by index. `best`: index of the best one that is not dropped. `pinned`: None if none is, or if
    that is not known. `max_tokens`: of a component's text. `program_proposes`: no language model does. `used`: by
    limit, what a new value of it must exceed. `fixed`: limits that cannot change while the run is driven, with the
    reason.
    `proposals`: ids of proposals by hand that were taken and not evaluated; None if they are not known.
    """

    candidates: Sequence[Mapping[str, str]]
    best: int
    dropped: Set[int] = frozenset()
    pinned: int | None = None
    max_tokens: int | None = None
    program_proposes: bool = False
    used: Mapping[str, float] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    proposals: Set[str] | None = None


def objection(action: AnyAction, situation: RequestContext) -> str | None:
    """Return why an action cannot be taken, and what to do instead; None if it can."""
    match action:
        case Propose():
            return _against_proposal(action, situation)
        case Withdraw():
            if situation.proposals is not None and action.request not in situation.proposals:
                return f"no proposal by hand {action.request} waits to be evaluated"
        case Pin():
            if action.candidate in situation.dropped:
                return f"candidate {action.candidate} was dropped, so it is no parent: pin another one"
            return _unknown(action.candidate, situation)
        case Drop():
            return _against_drop(action.candidate, situation)
        case Hint() if situation.program_proposes:
            return "the program itself proposes new texts, and reads no hints: hints need a run with `reflection_lm`"
        case SetBudget():
            return _against_budget(action, situation)
    return None


def _unknown(index: int, situation: RequestContext) -> str | None:
    if index < len(situation.candidates):
        return None
    return f"the run has no candidate {index}: it has 0 to {len(situation.candidates) - 1}"


def _against_proposal(action: Propose, situation: RequestContext) -> str | None:
    parent = situation.best if action.parent is None else action.parent
    if (unknown := _unknown(parent, situation)) is not None:
        return unknown
    if parent in situation.dropped:
        return f"candidate {parent} was dropped, so it is no parent: name another one"
    from gepa_client.gepa.reflection_prompt import tokens_of  # heavy

    before = situation.candidates[parent]
    texts = [name for name in before if name not in CODE_COMPONENTS]
    for name, text in action.texts.items():
        if name in CODE_COMPONENTS:
            return f"{name} is code: only texts are proposed by hand"
        if name not in texts:
            return f"the program has no component {name!r} (it has {', '.join(texts)})"
        if not text.strip():
            return f"the text of {name} is empty"
        if situation.max_tokens is not None and (size := tokens_of(text)) > situation.max_tokens:
            limit = f"`max_component_tokens` {situation.max_tokens:,}"
            return f"the text of {name} has about {size:,} tokens, more than {limit} allows"
    if all(text.strip() == before[name].strip() for name, text in action.texts.items()):
        return f"candidate {parent} has these texts already"
    return None


def _against_drop(index: int, situation: RequestContext) -> str | None:
    if (unknown := _unknown(index, situation)) is not None:
        return unknown
    if index in situation.dropped:
        return f"candidate {index} was dropped before"
    if index == situation.pinned:
        return f"candidate {index} is pinned: unpin it first"
    if len(situation.candidates) - len(situation.dropped) == 1:
        return f"candidate {index} is the only one left: a run needs one that is not dropped"
    return None


def _against_budget(action: SetBudget, situation: RequestContext) -> str | None:
    if not action.limits:
        return "a budget names at least one limit: metric calls, cost or seconds"
    for name, value in action.limits.items():
        if name in situation.fixed:
            return situation.fixed[name]
        if value <= (used := situation.used.get(name, 0)):
            return (
                f"`{name}` {value:,.12g} is not above the {used:,.6g} that the run has used: "
                "give more, or pause the run"
            )
    return None
