"""What users asked of a run, in words, for reports and commands."""

from collections import Counter
from collections.abc import Sequence

from evolverpc_common.display_text import counted
from gepa_client.journal.run_events import Steered
from gepa_client.run.run_view import RunView
from gepa_client.steering.request_queue import STOPS


def steered_text(event: Steered) -> str:
    """Return a request and its outcome in one line."""
    if event.refused is not None:
        return f"refused: {event.text}, asked by {event.author}: {event.refused}"
    return f"{event.text}, asked by {event.author} (entry {event.number})"


def steered_summary(kinds: Sequence[str]) -> str | None:
    """Return how often a run was steered, by the kinds of the requests that it took; None if it was not."""
    if not kinds:
        return None
    found = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in Counter(kinds).items())
    return f"{counted(len(kinds), 'request')} by hand: {found}"


def steered_kinds(view: RunView) -> list[str]:
    """Return the kinds of the requests that a run took, in order, without those that stopped it."""
    return [event.action for event in view.steered if event.refused is None and event.action not in STOPS]
