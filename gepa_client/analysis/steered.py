"""The requests of users that a recorded run took, and the outcomes of the texts that they proposed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from gepa_client.analysis.proposals import Outcome, Recorded
from gepa_client.journal.entries import CONTROL, SEARCH, SteeringRequest, StoredRun
from gepa_client.journal.history import entries, entries_at, recorded_events
from gepa_client.journal.run_events import Steered
from gepa_client.journal.steer_entries import Propose, SteerEntry, Withdraw, action_of, described
from gepa_client.journal.store import Store


@dataclass(frozen=True)
class TakenRequest:
    """An entry that a request made. `part`: `search`, or `control` for one that stopped the run."""

    part: str
    number: int
    entry: SteerEntry


def steered(store: Store, run: StoredRun) -> list[TakenRequest]:
    """Return the requests that a run took, in the order of its entries; those that stopped it last."""
    events = recorded_events(store, run.id) if run.counters.get("steered") else ()
    numbers = [event.number for event in events if isinstance(event, Steered) and event.number is not None]
    return [
        TakenRequest(part, entry.number, SteerEntry.model_validate_json(entry.answer))
        for part, found in (
            (SEARCH, entries_at(store, run.id, SEARCH, numbers)),
            (CONTROL, entries(store, run.id, CONTROL)),
        )
        for entry in found
    ]


@dataclass(frozen=True)
class TextsOutcome:
    """The outcome of texts by hand. `outcome`: that of their proposal; `withdrawn` and `pending` have none.

    `candidate`: the index of the candidate that they became; None if they became none. `why`: the outcome in words.
    """

    outcome: Outcome | Literal["withdrawn", "pending"]
    candidate: int | None
    why: str


def texts_outcomes(
    taken: Iterable[SteerEntry], proposals: Iterable[Recorded], *, over: bool
) -> dict[str, TextsOutcome]:
    """Return the outcomes of the texts that requests in `taken` proposed, by the request's id.

    `proposals`: those of the run; `over`: it has ended.
    """
    entries = [*taken]
    withdrawn = {each.action.request: each.author for each in entries if isinstance(each.action, Withdraw)}
    evaluated = {each.made.request: each for each in proposals if each.made is not None}
    found = {}
    for entry in (each for each in entries if isinstance(each.action, Propose)):
        if (proposal := evaluated.get(entry.id)) is not None:
            found[entry.id] = TextsOutcome(proposal.outcome, proposal.candidate, proposal.why)
        elif (author := withdrawn.get(entry.id)) is not None:
            found[entry.id] = TextsOutcome("withdrawn", None, f"withdrawn by {author} before it was evaluated")
        else:
            when = "the run ended before it was evaluated" if over else "not evaluated yet"
            found[entry.id] = TextsOutcome("pending", None, when)
    return found


def request_text(asked: SteeringRequest) -> str:
    """Return what a request asks for, in words."""
    try:
        return described(action_of(asked.action))
    except ValidationError:  # another version, or another program, wrote it: the run refuses it
        return str(asked.action.get("kind"))


def taken_text(part: str, number: int, texts: TextsOutcome | None) -> str:
    """Return where a request was recorded, or that it stopped the run, and the outcome of its `texts`, in words."""
    where = f"entry {number}" if part == SEARCH else "stopped the run"
    if texts is None:
        return where
    became = "" if texts.candidate is None else f"candidate {texts.candidate}, "
    return f"{where}, {became}{texts.why}"
