"""The sandboxes of one command: started before its work, controlled by the run's events, ended with it."""

import contextlib
import json
import math
import queue
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import PurePath
from types import FrameType

from gepa_client.journal.run_events import Event, Finished, FleetChanged, Progress
from gepa_client.run.control_messages import ModelCallMessage, RefusalMessage, parse_message
from gepa_client.sandboxing.session_interface import SWEEP, Driver, Log, NoSandboxes, Show
from gepa_client.sandboxing.session_thread import (
    BudgetExhausted,
    OpenSetup,
    Ready,
    SandboxThread,
    SessionFailed,
    SessionMessage,
    control_message,
)
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.address import socket_of
from sandbox_runtime import EnvironmentMissing, SandboxError
from sandbox_runtime.gateway import GatewayRefusal, ProviderCall
from sandbox_runtime.pool import PoolEvent, PoolFailed, SandboxPool

CAP_GRACE_S = 70.0
"""Seconds from the spend cap to the end of the sandboxes; longer than the driver needs to abandon calls that are held
and to end the run by itself."""

ASK_EVERY_S = 15.0
"""Seconds between two requests for a new token of a sandbox that takes no calls."""


class SessionNotStarted(Exception):
    """No sandbox became ready; the text gives the reason and the end of its log.

    `must_publish`: at Modal, the environment was never built.
    """

    def __init__(self, error: BaseException, *, must_publish: bool) -> None:
        tail = str(getattr(error, "log_tail", "")).strip()
        more = f"\n{tail}" if tail and tail not in str(error) else ""
        super().__init__(f"no sandbox could be started: {error}{more}")
        self.must_publish = must_publish


class SandboxSession(NoSandboxes):
    """`size` sandboxes started from the repository that `settings` name, as the main thread uses them."""

    def __init__(self, settings: RunConfig, run_id: str, open_setup: OpenSetup, *, size: int) -> None:
        super().__init__(settings)
        self._thread = SandboxThread(settings, run_id, open_setup, size=size)
        self._exhausted_s: float | None = None
        self._in_cooldown: dict[str, float] = {}

    def start(self, show: Show, progress: Callable[[str], None], *, spent_usd: float = 0.0) -> None:
        """Start the sandboxes and wait for the first; `settings` then name its commit and the fleet file.

        `progress` gets the number of sandboxes that are ready, `spent_usd` is what the run has spent before.

        Raises:
            SessionNotStarted: none became ready.
        """
        self._thread.start()
        for_driver: list[SessionMessage] = []
        ready: Ready | None = None
        while ready is None:
            match message := self._thread.messages.get():
                case Ready():
                    ready = message
                case SessionFailed():
                    if not isinstance(message.error, SandboxError | PoolFailed | OSError | ValueError):
                        raise message.error
                    unpublished = isinstance(message.error, EnvironmentMissing) and self.settings.sandbox == "modal"
                    raise SessionNotStarted(message.error, must_publish=unpublished) from message.error
                case Log():
                    show(message)
                case GatewayRefusal():
                    show(_refusal_log(message))
                    for_driver.append(message)
                case PoolEvent():
                    progress(f"{message.ready} of {message.wanted} sandboxes ready")
                    if message.kind == "failed" and (log := pool_log(message)) is not None:
                        show(log)
                case _:
                    for_driver.append(message)
        for message in for_driver:
            self._thread.messages.put(message)
        self._thread.spent(spent_usd)
        self.settings = self.settings.model_copy(update={"fleet": ready.fleet, "ref": ready.commit})

    def close(self) -> bool:
        """End all sandboxes; return whether that was done in time."""
        with signals_ignored():
            return self._thread.close()

    @property
    def has_gateway(self) -> bool:
        """Whether models are called through a gateway: at Modal only if it is reachable from there."""
        return self.settings.sandbox != "modal" or self.settings.gateway_url is not None

    def displayed(self, event: Event) -> Event | None:
        """Replace the address of a sandbox by its name; drop what pool events report already."""
        if not isinstance(event, FleetChanged) or event.url is None:
            return event
        if event.kind in ("joined", "left"):
            return None
        path = socket_of(event.url)
        if path is None:
            return event
        name = f"sandbox {PurePath(path).parent.name}"  # the socket's folder has the sandbox's name
        return event.model_copy(update={"url": name, "detail": event.detail.replace(event.url, "it")})

    @contextlib.contextmanager
    def reporting_to(self, driver: Driver) -> Iterator[None]:
        """Forward model calls to the driver as they end, while the block runs."""
        self._thread.report_to(driver)
        try:
            yield
        finally:
            self._thread.report_to(None)

    def check_findings(self) -> list[Log]:
        """Return the spend cap, if it was reached, and each different refusal once."""
        found: dict[tuple[str, str], Log] = {}
        for message in _drain(self._thread.messages):
            if isinstance(message, BudgetExhausted):
                text = f"max_cost_usd of ${self.settings.max_cost_usd:g} was reached by checking a few rows"
                found["", ""] = Log(f"{text}: give more, or --no-check", is_warning=True)
            elif isinstance(message, GatewayRefusal):
                found.setdefault((message.what, message.reason), _refusal_log(message))
        return list(found.values())

    def end(self) -> list[ModelCallMessage | RefusalMessage]:
        """End the sandboxes; the block's own `close` reports one that did not end in time."""
        self.close()
        calls = [each for each in _drain(self._thread.messages) if isinstance(each, ProviderCall | GatewayRefusal)]
        parsed = [parse_message(json.dumps(control_message(call))) for call in calls]
        return [message for message in parsed if isinstance(message, ModelCallMessage | RefusalMessage)]

    def forward(self, driver: Driver, show: Show) -> None:
        """Forward messages of the sandboxes; ask again for tokens; end the sandboxes some time after the spend cap."""
        for message in _drain(self._thread.messages):
            self._forward_one(message, driver, show)
        for url, since in self._in_cooldown.items():
            if time.monotonic() - since > ASK_EVERY_S:  # the new token may have expired too, which no event reports
                self._in_cooldown[url] = time.monotonic()
                self._thread.to_pool(SandboxPool.refused, url)
        if self._exhausted_s is not None and time.monotonic() - self._exhausted_s > CAP_GRACE_S:
            self._exhausted_s = None
            show(Log("the spend cap is reached and calls are held: the sandboxes are ended", is_warning=True))
            if not self._thread.close():
                show(Log(f"not all sandboxes have ended: {SWEEP}", is_warning=True))

    def observe(self, event: Event) -> None:
        """Adapt the number of sandboxes to the work; ask for a new token of one that takes no calls."""
        thread = self._thread
        match event:
            case FleetChanged(kind="joined" | "back" | "left", url=str(url)):
                self._in_cooldown.pop(url, None)
                if event.kind == "left":
                    thread.to_pool(SandboxPool.left, url)
            case FleetChanged(kind="resting" | "warning" | "refused", url=str(url)):
                self._in_cooldown[url] = time.monotonic()
                thread.to_pool(SandboxPool.refused, url)  # its token may have expired
            case Progress():
                thread.spent(event.spent_usd)
                if event.up and event.slots:
                    wanted = math.ceil((event.in_flight + event.waiting) * event.up / event.slots)
                    thread.to_pool(SandboxPool.demand, wanted)
            case Finished():
                self._exhausted_s = None

    def _forward_one(self, message: SessionMessage, driver: Driver, show: Show) -> None:
        match message:
            case ProviderCall() | GatewayRefusal():
                driver.send(control_message(message))
            case BudgetExhausted():
                self._exhausted_s = time.monotonic()
                driver.send({"cap": {"reason": f"max_cost_usd of {self.settings.max_cost_usd:g} is reached"}})
            case PoolEvent(kind="gave_up"):
                driver.stop(f"no sandbox is running, and none can be started: {message.detail}")
            case PoolEvent():
                if (log := pool_log(message)) is not None:
                    show(log)
            case SessionFailed():
                driver.stop(f"the sandboxes are lost: {message.error}")
            case Log():
                show(message)


def pool_log(event: PoolEvent) -> Log | None:
    """Return the line about an event of the pool; None if the user needs none."""
    ready = f"{event.ready} of {event.wanted} ready"
    match event.kind:
        case "ready" if event.ready == event.wanted > 1:
            return Log(f"all {event.ready} sandboxes are ready, {event.elapsed_s:.1f} s after the first start began")
        case "died":
            return Log(f"sandbox {event.id or ''} has ended ({event.detail}) and is replaced; {ready}", is_warning=True)
        case "failed":
            later = f"; next attempt in {event.seconds:.0f} s" if event.seconds else ""
            return Log(f"a sandbox could not be started: {event.detail}{later}", is_warning=True)
        case "unasked":
            text = f"sandbox {event.id or ''} refuses its token, and no new one is available: {event.detail}"
            return Log(text, is_warning=True)
        case "not_freed":
            which = "not all sandboxes" if event.id is None else f"not all of sandbox {event.id}"
            return Log(f"{which} could be freed: {event.detail}; `{SWEEP}` ends what is left", is_warning=True)
        case "shrinks":
            return Log(f"there is work for fewer sandboxes: {event.wanted} stay")
        case "grows":
            return Log(f"there is work for more sandboxes: {event.wanted} are wanted")
        case _:
            return None


def _refusal_log(refusal: GatewayRefusal) -> Log:
    return Log(f"refused: {refusal.what} of {refusal.sandbox}: {refusal.reason}", is_warning=True)


def _drain(messages: "queue.SimpleQueue[SessionMessage]") -> Iterator[SessionMessage]:
    while not messages.empty():
        yield messages.get()


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the block as Ctrl-C does, so that what it started is ended too."""

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
def signals_ignored() -> Iterator[None]:
    """Ignore signals in the block: it is bounded in time, and leaves nothing behind only if it completes."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
