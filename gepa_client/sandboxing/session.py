"""Servers in sandboxes for as long as a command needs them, where its settings name a repository."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import PurePath
from types import FrameType
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from gepa_client.cli.exit_status import STOPPED, USAGE
from gepa_client.cli.views.console import fail, make_console, safe, say
from gepa_client.cli.views.sandboxes_view import StartStatus, during, publishing, why
from gepa_client.journal.run_events import Event, Finished, FleetChanged, Progress
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.address import socket_of

if TYPE_CHECKING:
    from gepa_client.run.control_messages import ModelCallMessage, RefusalMessage
    from gepa_client.sandboxing.session_thread import OpenGround, Optimizer, SandboxThread, Told

CAP_GRACE_S = 70.0
"""Seconds after which the sandboxes are ended where the spend cap is reached; longer than the optimizer needs to end
the run by itself, which gives up calls that are held."""

ASK_EVERY_S = 15.0
"""How often a sandbox that takes no calls is asked for a new token."""

SWEEP = "gepa-client sandboxes --sweep"

Note = Callable[[str], None]
"""Shows a line; it is markup."""


class Sandboxes:
    """The sandboxes of a command, as its main thread sees them; `settings` name their servers.

    There are none where the settings that were given name servers themselves.
    """

    def __init__(self, settings: RunConfig, thread: "SandboxThread | None" = None) -> None:
        self.settings = settings
        self._thread = thread
        self._capped_s: float | None = None
        self._resting: dict[str, float] = {}

    @property
    def have_gateway(self) -> bool:
        """Whether models are called through a gateway, which counts what that costs."""
        settings = self.settings
        return self._thread is not None and (settings.sandbox != "modal" or settings.gateway_url is not None)

    def shown(self, event: Event) -> Event | None:
        """The event as people are shown it: sandboxes by their names; None for what is told here in other words."""
        if self._thread is None or not isinstance(event, FleetChanged) or event.url is None:
            return event
        if event.kind in ("joined", "left"):
            return None
        path = socket_of(event.url)
        if path is None:
            return event
        name = f"sandbox {PurePath(path).parent.name}"  # the socket's folder has the sandbox's name
        return event.model_copy(update={"url": name, "detail": event.detail.replace(event.url, "it")})

    @contextlib.contextmanager
    def reporting_to(self, process: "Optimizer") -> Iterator[None]:
        """While the block runs, the optimizer is told of calls of models, those before it included."""
        if self._thread is None:
            yield
            return
        self._thread.report_to(process)
        try:
            yield
        finally:
            self._thread.report_to(None)

    def why_not_begun(self) -> list[str]:
        """What has to do with sandboxes of what a check found, as markup: the spend cap, and what was refused."""
        if self._thread is None:
            return []
        from gepa_client.sandboxing.session_thread import Capped
        from sandbox_runtime.gateway import Refusal

        words, seen = [], set()
        while not self._thread.told.empty():
            told = self._thread.told.get()
            if isinstance(told, Capped):
                cap = self.settings.max_cost_usd
                words.append(f"max_cost_usd of ${cap:g} was reached by trying a few rows: give more, or --no-check")
            elif isinstance(told, Refusal) and (told.what, told.reason) not in seen:
                seen.add((told.what, told.reason))
                words.append(f"[yellow]not let through:[/] {safe(told.what)}: {safe(told.reason)}")
        return words

    def end(self) -> "list[ModelCallMessage | RefusalMessage]":
        """End them, before the block does; what of calls and refusals the optimizer was not there to be told of."""
        if self._thread is None:
            return []
        from gepa_client.sandboxing.session_thread import untold

        with undisturbed():
            self._thread.close()  # that it did not end in time is told where the block ends
        return untold(self._thread.told)

    def attend(self, process: "Optimizer", note: Note) -> None:
        """Hand on what has happened since the last time."""
        if self._thread is None:
            return
        while not self._thread.told.empty():
            self._hand_on(self._thread.told.get(), process, note)
        for url, since in self._resting.items():
            if time.monotonic() - since > ASK_EVERY_S:  # the new token may have ended too, which nobody tells twice
                self._resting[url] = time.monotonic()
                self._thread.refused(url)
        if self._capped_s is not None and time.monotonic() - self._capped_s > CAP_GRACE_S:
            self._capped_s = None
            note("[yellow]the spend cap is reached and calls are held: the sandboxes are ended[/]")
            self._end(note)

    def event(self, event: Event) -> None:
        """Take note of what the optimizer tells."""
        thread = self._thread
        if thread is None:
            return
        match event:
            case FleetChanged(kind="joined" | "back" | "left", url=str(url)):
                self._resting.pop(url, None)
                if event.kind == "left":
                    thread.left(url)
            case FleetChanged(kind="resting" | "warning" | "refused", url=str(url)):
                self._resting[url] = time.monotonic()
                thread.refused(url)  # it may be that its token has ended
            case Progress():
                thread.spent(event.spent_usd)
                if event.up and event.slots:
                    thread.demand(math.ceil((event.in_flight + event.waiting) * event.up / event.slots))
            case Finished():
                self._capped_s = None

    def _hand_on(self, told: "Told", process: "Optimizer", note: Note) -> None:
        from gepa_client.sandboxing.session_thread import Capped, Failed, Said, line_of
        from sandbox_runtime.gateway import ModelCall, Refusal
        from sandbox_runtime.pool import PoolEvent

        match told:
            case ModelCall() | Refusal():
                process.tell(line_of(told))
            case Capped():
                self._capped_s = time.monotonic()
                process.tell({"cap": {"reason": f"max_cost_usd of {self.settings.max_cost_usd:g} is reached"}})
            case PoolEvent(kind="gave_up"):
                process.stop(f"no sandbox is up, and none can be started: {told.detail}")
            case PoolEvent():
                if words := during(told):
                    note(words)
            case Failed():
                process.stop(f"the sandboxes are lost: {told.error}")
            case Said():
                note(told.markup)

    def _end(self, note: Note) -> None:
        if self._thread is not None and not self._thread.close():
            note(f"[yellow]not all sandboxes have ended:[/] {SWEEP}")


@contextlib.contextmanager
def sandboxed(
    settings: RunConfig,
    run_id: str,
    again: str,
    *,
    quiet: bool = False,
    count: int | None = None,
    spent_usd: float = 0.0,
    failed: int = USAGE,
    open_ground: "OpenGround | None" = None,
) -> Iterator[Sandboxes]:
    """Sandboxes while the block runs, the first of them ready, where `settings` name a repository; else none.

    `again`: what to type when it failed. `quiet`: on stdout there is to be JSON alone. `count`: how many, in place of
    what the settings say. `spent_usd`: what the run has spent before. `failed`: the exit status where none comes up.

    Raises:
        typer.Exit: none came up, or somebody stopped it; the user was told.
    """
    if settings.repo is None:
        yield Sandboxes(settings)
        return
    from gepa_client.sandboxing.session_thread import SandboxThread

    if open_ground is None:
        from gepa_client.sandboxing.setup import ground

        open_ground = ground
    console = make_console(stderr=quiet)
    size = settings.sandboxes if count is None else count
    thread = SandboxThread(settings, run_id, open_ground, size=size)
    with _terminable():
        try:
            try:
                thread.start()
                found = _first(thread, settings, console, size, again, failed)
                thread.spent(spent_usd)
            except KeyboardInterrupt:
                fail("stopped by hand")
                raise typer.Exit(STOPPED) from None
            yield Sandboxes(found, thread)
        finally:
            with undisturbed():
                if not thread.close():
                    fail(f"not all sandboxes have ended; this ends what is left: {SWEEP}")


def _first(
    thread: "SandboxThread", settings: RunConfig, console: Console, size: int, again: str, failed: int
) -> RunConfig:
    """Wait for the first sandbox, and show how that goes; the settings with its fleet file."""
    from gepa_client.sandboxing.session_thread import Failed, Said, Up, is_expected
    from sandbox_runtime import NotPrepared
    from sandbox_runtime.gateway import Refusal
    from sandbox_runtime.pool import PoolEvent

    began = time.monotonic()
    kept: list[Told] = []
    with StartStatus(console, f"starting {size} sandbox{'' if size == 1 else 'es'} ({settings.sandbox})") as waiting:
        while True:
            told = thread.told.get()
            match told:
                case Up():
                    break
                case Failed():
                    waiting.stop()
                    if not is_expected(told.error):
                        raise told.error
                    fail(why(told.error))
                    is_unpublished = isinstance(told.error, NotPrepared) and settings.sandbox == "modal"
                    once = "next" if is_unpublished else "once that is mended"
                    say(make_console(stderr=True), f"{once}: {safe(publishing(settings) if is_unpublished else again)}")
                    raise typer.Exit(failed)
                case Said():
                    waiting.say(told.markup)
                case Refusal():
                    waiting.say(
                        f"[yellow]not let through:[/] {safe(told.what)} of {safe(told.sandbox)}: {safe(told.reason)}"
                    )
                    kept.append(told)
                case PoolEvent(kind="failed"):
                    waiting.say(during(told))
                case PoolEvent():
                    waiting.now(f"{told.ready} of {told.wanted} sandboxes ready")
                case _:
                    kept.append(told)  # for the optimizer, once there is one
    for each in kept:
        thread.told.put(each)
    which = "the sandbox" if size == 1 else f"the first of {size} sandboxes"
    say(console, f"[dim]{which} was ready after {time.monotonic() - began:.1f} s[/]")
    return settings.model_copy(update={"fleet": told.fleet, "ref": told.commit})


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and a closed terminal end the block as Ctrl-C does, so that what it started is ended too."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Signals wait: what follows is bounded, and leaves nothing behind only if it comes to its end."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
