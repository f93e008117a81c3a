"""The events of one run as one server sends them: numbered, in order, each fact once."""

import asyncio
import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson
from pydantic import BaseModel

from gepa_client.page.page_events import COLUMNS, KEYS, PageEvent

EPOCH_BYTES = 8


class EventLog:
    """Events with ids from 0. One thread adds; any thread, and waiters on an event loop, read.

    An event that a later one replaces is forgotten, so its id is missing for readers who come later. `epoch`: differs
    for each log, so that an id is never read as one of another log.
    """

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(EPOCH_BYTES)
        self._lock = threading.Lock()
        self._events: list[bytes | None] = []
        self._last: dict[tuple[str, Any], tuple[int, bytes]] = {}
        self._published = 0
        self._listeners: dict[object, Callable[[], None]] = {}

    @property
    def end(self) -> int:
        """The id of the next event."""
        return len(self._events)

    @property
    def is_followed(self) -> bool:
        """Whether a page waits for events."""
        return bool(self._listeners)

    def add(self, event: PageEvent) -> None:
        """Add an event, unless it repeats the one that it would replace."""
        body = to_json(event)
        key = (event.event, getattr(event, KEYS[event.event]) if event.event in KEYS else None)
        with self._lock:
            number, before = self._last.get(key, (-1, b"")) if event.event != COLUMNS else (-1, b"")
            if before == body:
                return
            if number >= 0:
                self._events[number] = None
            self._last[key] = (len(self._events), body)
            self._events.append(body)

    def since(self, first: int, limit: int) -> tuple[list[tuple[int, bytes]], int]:
        """Return events from the id `first` on with their ids, about `limit` bytes of them, and the id that follows."""
        found: list[tuple[int, bytes]] = []
        size, number = 0, first
        with self._lock:
            while number < len(self._events) and size < limit:
                data = self._events[number]
                if data is not None:
                    found.append((number, data))
                    size += len(data)
                number += 1
        return found, number

    def last_of(self, kind: str) -> list[Any]:
        """Return the events of a kind as JSON values, those that were replaced left out."""
        with self._lock:
            bodies = [body for (type_, _), (_, body) in self._last.items() if type_ == kind]
        return [json.loads(body) for body in bodies]

    def published(self) -> None:
        """Wake those who wait, if anything was added since this was last called."""
        with self._lock:
            is_new, self._published = self._published < len(self._events), len(self._events)
        if is_new:
            self.wake()

    def wake(self) -> None:
        """Wake those who wait."""
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener()

    def listen(self, woken: asyncio.Event) -> Callable[[], None]:
        """Have `woken` set on its event loop when more was added; returns what ends this."""
        loop, key = asyncio.get_running_loop(), object()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        def stop() -> None:
            with self._lock:
                self._listeners.pop(key, None)

        with self._lock:
            self._listeners[key] = wake
        return stop


def to_json(value: Any) -> bytes:
    """Return JSON of a model, or any value that a store may hold: lone surrogates, which UTF-8 lacks, as escapes."""
    try:
        return orjson.dumps(value, _as_dict, orjson.OPT_NON_STR_KEYS)
    except (orjson.JSONEncodeError, TypeError):
        return json.dumps(value, separators=(",", ":"), default=_as_dict).encode()


def _as_dict(value: Any) -> dict[str, Any]:
    return value.model_dump() if isinstance(value, BaseModel) else asdict(value)
