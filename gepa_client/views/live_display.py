"""Displays of a run: live on a terminal, as plain lines elsewhere, as JSON events; its present state in words."""

import signal
import sys
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Self

import orjson
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evolverpc_common.display_text import counted, one_line, plain_json
from evolverpc_common.files import write_all
from gepa_client.evolution.candidate_names import candidate_name
from gepa_client.journal import run_events as events
from gepa_client.report.event_words import PHASES, EventText, clock, event_line, fleet_line, rejected_text
from gepa_client.report.summary_fields import budget_note
from gepa_client.run.run_view import RunView
from gepa_client.views.console import cut_cell, echo, safe, safe_line

PLAIN_EVERY_S = 10.0

WIDEST = 110

LONGEST = 1000
"""Characters of a line about an event."""

SPARE = 3
"""Columns left free: a terminal prints ^C after the frame, and a wrapped line would break the redrawing."""

SHORTEST_WAIT_S = 1.0
"""Seconds after which a wait for new texts is stated."""

PROGRESS = 110
"""Characters of what is known of a change that is being made."""


class Display(AbstractContextManager["Display"]):
    """Displays a run while it is driven."""

    def __init__(self) -> None:
        self._paused: set[str] = set()
        self._failed: tuple[str, str] | None = None

    def __exit__(self, *_: object) -> None:
        pass

    @abstractmethod
    def event(self, event: events.Event, view: RunView) -> None:
        """Display an event that `view` already contains."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Print something that is not an event; `text` is markup."""

    def tick(self, view: RunView) -> None:
        """Update what depends on time; without a frame nothing does."""

    def _repeats(self, event: events.Event) -> bool:
        """Return whether the event was displayed.

        A failure as the last proposal's, a server that is paused already.
        """
        if isinstance(event, events.StepFailed):
            before, self._failed = self._failed, (event.step, event.message)
            return before == self._failed
        if isinstance(event, events.CandidateFound | events.Rejected):
            self._failed = None
        if not isinstance(event, events.FleetChanged) or event.url is None:
            return False
        known = event.url in self._paused
        if event.kind == "resting":
            self._paused.add(event.url)
        elif event.kind in ("joined", "back", "left"):
            self._paused.discard(event.url)
        return known and event.kind == "resting"


class JsonDisplay(Display):
    """Prints every event as a line of JSON on stdout."""

    def event(self, event: events.Event, _view: RunView) -> None:
        """Print the event on one line, with control and bidirectional characters escaped."""
        print(plain_json(event.model_dump_json()), flush=True)

    def note(self, text: str) -> None:
        """Print a note to stderr."""
        print(Text.from_markup(text).plain, file=sys.stderr, flush=True)


class EventStream:
    """Writes events and the summary as JSON lines to `descriptor`; None writes nothing.

    If the reader has closed it before the run has ended, this process gets a SIGTERM: the process that started the run
    is gone, and its program with it.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def event(self, event: events.Event) -> None:
        """Write an event."""
        if self._descriptor is None or self._write(event.model_dump_json().encode()):
            return
        if not isinstance(event, events.Finished):
            signal.raise_signal(signal.SIGTERM)

    def summary(self, summary: Mapping[str, Any]) -> None:
        """Write the last line, as `--json` prints it."""
        if self._descriptor is not None:
            self._write(orjson.dumps(summary))

    def resumed_by(self, run_id: str) -> str | None:
        """Return what continues the run, None for a command."""
        return None if self._descriptor is None else f"the program that started it, with `resume` {run_id}"

    def _write(self, line: bytes) -> bool:
        """Return whether there is a reader; without one nothing more is written."""
        if self._descriptor is not None and not write_all(self._descriptor, line + b"\n"):
            self._descriptor = None
        return self._descriptor is not None


class PlainDisplay(Display):
    """Prints a line for each notable event, and the progress every ten seconds."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._printed_s = 0.0

    def event(self, event: events.Event, view: RunView) -> None:
        """Print the event, if it is notable."""
        if (
            isinstance(event, events.Progress | events.MutationProgress)
            and event.seconds - self._printed_s < PLAIN_EVERY_S
        ):
            return
        code_evolves = view.started is not None and view.started.evolve != "prompts"
        if isinstance(event, events.NoProposal) or self._repeats(event):
            return
        if isinstance(event, events.Rejected) and not code_evolves:  # many, and cheap
            return
        if isinstance(event, events.Progress):
            text = safe(f"{calls_text(view)} · {pace_text(view)} · {pool_text(view)}")
        else:
            text = markup(event_line(event))
        if text:
            self._printed_s = event.seconds
            self.note(f"{event.seconds:7.1f} s  {text}")

    def tick(self, view: RunView) -> None:
        """Print, every ten seconds, which new texts are awaited."""
        text = safe(reflection_text(view))
        if text and view.seconds - max(self._printed_s, view.reflecting[0].seconds) >= PLAIN_EVERY_S:
            self._printed_s = view.seconds
            self.note(f"{view.seconds:7.1f} s  {text}")

    def note(self, text: str) -> None:
        """Print a line; `text` is markup."""
        echo(self._console, text)


DRAW_S = 0.1
"""Seconds between two drawings of the frame, at least."""


class LiveDisplay(Display):
    """A frame that is redrawn in place, with the latest events below it."""

    LINES = 6

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._view = RunView()
        self._latest: deque[str] = deque(maxlen=self.LINES)
        self._is_empty = False
        """Whether there was nothing to see, so that the frame is removed."""
        self._drawn_s = 0.0
        # Drawn by the printing thread: another one would draw in the middle of a line.
        self._live = Live(console=console, get_renderable=self._frame, auto_refresh=False)

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _begin(self) -> None:
        self._live.start(refresh=True)

    def _redraw(self) -> None:
        self._live.refresh()

    def _end(self) -> None:
        self._live.transient = self._is_empty
        self._live.stop()

    def event(self, event: events.Event, view: RunView) -> None:
        """Add the event to the frame; a line that stays is printed above it."""
        self._view = view
        if isinstance(event, events.Finished) and view.started is None:
            self._is_empty = True
        if self._repeats(event):
            return
        line = event_line(event)
        text = markup(line)
        if line.is_kept:
            echo(self._console, text)
        elif text and not isinstance(event, events.Phase | events.MutationProgress):  # the frame has lines for those
            self._latest.append(f"[dim]{event.seconds:7.1f} s[/]  {text}")
        self._draw()

    def tick(self, view: RunView) -> None:
        """Update the clock while no event arrives."""
        self._view = view
        self._draw()

    def _draw(self) -> None:
        if time.monotonic() - self._drawn_s > DRAW_S:
            self._drawn_s = time.monotonic()
            self._redraw()

    def note(self, text: str) -> None:
        """Print a line above the frame."""
        echo(self._console, text)

    def _frame(self) -> RenderableType:
        return frame(self._view, list(self._latest), min(self._console.width - SPARE, WIDEST))


def markup(shown: EventText) -> str:
    """Return a line as markup, the texts of servers and models in it escaped."""
    text = safe(shown.text) if shown.whole else safe_line(shown.text, LONGEST)
    lead = safe_line(shown.lead) or text
    styled = f"[{shown.style}]{lead}[/]" if shown.style and lead else lead
    return f"{styled} {text}".rstrip() if shown.lead else styled


def frame(view: RunView, latest: list[str], width: int) -> RenderableType:
    """Build the frame of a run, `width` columns wide: four lines of facts and the latest events."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(ratio=1)
    facts.add_row("score", Text.from_markup(_scores(view)))
    bar = Table.grid(padding=(0, 2))
    bar.add_column()
    bar.add_column(no_wrap=True)
    if view.budget is not None:
        done = min(view.metric_calls, view.budget)
        bar.add_row(
            ProgressBar(total=view.budget, completed=done, width=24),
            f"{view.metric_calls:,} of {view.budget:,} metric calls",
        )
    else:
        bar.add_row(calls_text(view))
    facts.add_row("calls", bar)
    if (waiting := waiting_line(view)) is not None:
        facts.add_row("pace", Text.from_markup(markup(waiting)))
    elif pace := reflection_text(view) or pace_text(view):
        facts.add_row("pace", Text(pace))
    facts.add_row("pool", pool_text(view))
    if view.started is not None and view.started.evolve != "prompts":
        facts.add_row("code", cut_cell(safe(changes_text(view))))
    latest_lines = [cut_cell(text) for text in latest]
    now = f"{PHASES[view.phase]} · {clock(view.seconds)}"
    name = safe(title(view.started)) if view.started else "evolverpc"
    return Panel(
        Group(facts, *([Text("")] if latest_lines else []), *latest_lines),
        title=f"[bold]{name}[/]",
        title_align="left",
        subtitle=now if view.finished is None else view.finished.status,  # the last line has the run's time
        subtitle_align="left",
        border_style="dim",
        width=width,
    )


def _scores(view: RunView) -> str:
    if view.seed is None or view.best is None:
        return "[dim]not known yet[/]"
    best = f"{candidate_name(view.best.index)}{'' if view.best.index else ' itself'}"
    return f"seed {view.seed.score:.2f} · best [bold green]{view.best.score:.2f}[/] ({best})"


def title(started: events.Started) -> str:
    """Return the run's own name first, as several programs often have the same name."""
    own = started.config.get("name") or started.run_id
    return f"{one_line(str(own), 40)} · {one_line(started.program, 40)}"


def calls_text(view: RunView) -> str:
    """Return `412 of 3,000 metric calls`."""
    return f"{view.metric_calls:,}{budget_note(view)} metric calls"


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
