"""Three displays of a run: live on a terminal, plain lines elsewhere, and JSON events."""

import sys
import time
from abc import abstractmethod
from collections import deque
from contextlib import AbstractContextManager
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evolverpc_common.display_text import plain_json
from gepa_client.evolution.names import candidate_name
from gepa_client.journal import run_events as events
from gepa_client.report.event_words import PHASES, EventText, clock, event_line
from gepa_client.report.state_words import (
    calls_text,
    changes_text,
    pace_text,
    pool_text,
    reflection_text,
    title,
    waiting_line,
)
from gepa_client.run.run_view import RunView
from gepa_client.views.console import cut_cell, echo, safe, safe_line

PLAIN_EVERY_S = 10.0

WIDEST = 110

LONGEST = 1000
"""Characters of a line about an event."""

SPARE = 3
"""Columns left free: a terminal prints ^C after the frame, and a wrapped line would break the redrawing."""


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


class Screen(Protocol):
    """Where a frame is drawn in place: `rich.live.Live`, or the output of a notebook's cell."""

    transient: bool

    def start(self, refresh: bool = False) -> None:
        """Draw the first frame."""
        ...

    def refresh(self) -> None:
        """Draw the frame again."""
        ...

    def stop(self) -> None:
        """Draw the last frame, or remove it if it is `transient`."""
        ...


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
        self._live = self._screen()
        self._drawn_s = 0.0

    def _screen(self) -> Screen:
        # Drawn by the printing thread: another one would draw in the middle of a line.
        return Live(console=self._console, get_renderable=self._frame, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def event(self, event: events.Event, view: RunView) -> None:
        """Add the event to the frame; a line that stays is printed above it."""
        self._view = view
        if isinstance(event, events.Finished) and view.started is None:
            self._live.transient = True  # there was nothing to see
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
            self._live.refresh()

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
