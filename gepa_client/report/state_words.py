"""The present state of a run in words, which the frame of a terminal, that of a notebook, and plain lines show."""

from evolverpc_common.display_text import counted, one_line
from gepa_client.journal import run_events as events
from gepa_client.report.event_words import EventText, clock, fleet_line, rejected_text
from gepa_client.run.run_view import RunView

SHORTEST_WAIT_S = 1.0
"""Seconds after which a wait for new texts is stated."""

PROGRESS = 110
"""Characters of what is known of a change that is being made."""


def title(started: events.Started) -> str:
    """Return the run's own name first, as several programs often have the same name."""
    own = started.config.get("name") or started.run_id
    return f"{one_line(str(own), 40)} · {one_line(started.program, 40)}"


def calls_text(view: RunView) -> str:
    """Return `412 of 3,000 metric calls`."""
    return f"{view.metric_calls:,}{budget_note(view)} metric calls"


def budget_note(view: RunView) -> str:
    """Return ` of 1,500`, and why more was used; empty without a budget.

    GEPA checks the budget between iterations, and finishes what has begun.
    """
    if view.budget is None:
        return ""
    return f" of {view.budget:,}" + (" (what had begun was finished)" if view.metric_calls > view.budget else "")


def pace_text(view: RunView) -> str:
    """Return `5 in flight · 2 of 3 servers · $0.0123 · 50.0 examples/s · about 0:57 left`."""
    rate, left = view.rate(), view.seconds_left()
    parts = [] if view.finished is not None else [f"{view.in_flight} in flight"]
    if view.endpoints > 1:
        parts.append(f"{view.up} of {view.endpoints} servers")
    if view.spent_usd:
        parts.append(f"${view.spent_usd:.4f}")
    if view.model_calls is not None and view.model_calls.total.calls:
        parts.append(counted(view.model_calls.total.calls, "model call"))
    if view.refused_calls:
        parts.append(f"{view.refused_calls:,} refused")
    if rate and view.finished is None:
        parts.append(f"{rate:,.1f} examples/s")
    if left:
        parts.append(f"about {clock(left)} left")
    return " · ".join(parts)


def waiting_line(view: RunView) -> EventText | None:
    """Return an outage with the time left before the run pauses; None if a server answers."""
    event = view.waiting
    if event is None or event.after is None:
        return None if event is None else fleet_line(event)
    left = max(0.0, event.after - (view.seconds - event.seconds))
    return fleet_line(event.model_copy(update={"after": left}))


def reflection_text(view: RunView) -> str:
    """Return what new texts are awaited from the proposer, and for how long; empty before a second."""
    if not view.reflecting or view.started is None or view.mutating:
        return ""
    first, count = view.reflecting[0], len(view.reflecting)
    waited_s = view.seconds - first.seconds
    if waited_s < SHORTEST_WAIT_S:
        return ""
    components = dict.fromkeys(name for proposal in view.reflecting for name in proposal.components)
    proposals = f", {count} proposals" if count > 1 else ""
    failed = f"; asked again after: {one_line(view.reflection_error, 160)}" if view.reflection_error else ""
    return (
        f"waiting {clock(waited_s)} for {one_line(view.started.proposer, 40)}: "
        f"{one_line(', '.join(components), 60)} (iteration {first.iteration}{proposals}){failed}"
    )


def pool_text(view: RunView) -> str:
    """Return `3 candidates · 1 on the front · 7 rejected · 1 iteration without a proposal · 2 failed`."""
    parts = [counted(len(view.candidates), "candidate"), f"{len(view.front)} on the front", rejected_text(view)]
    if view.skipped:
        parts.append(f"{counted(len(view.skipped), 'iteration')} without a proposal")
    if view.failures:
        parts.append(f"{len(view.failures)} failed")
    return " · ".join(filter(None, parts))


def changes_text(view: RunView) -> str:
    """Return `3 changes made · 1 refused · 2 being made: the agent reads a.py`."""
    made = sum(isinstance(mutation, events.Mutated) for mutation in view.mutations)
    parts = [f"{counted(made, 'change')} made", f"{len(view.mutations) - made} refused"]
    if view.mutating:
        latest = next((message for message in reversed(view.mutating.values()) if message), "")
        parts.append(f"{len(view.mutating)} being made" + (f": {one_line(latest, PROGRESS)}" if latest else ""))
    return " · ".join(parts)
