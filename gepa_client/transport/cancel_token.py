"""Stops a run from any thread: whoever is about to begin something asks first, what is under way goes on."""

import threading
from collections.abc import Callable

from gepa_client.errors import Interrupted


class Halt:
    """Nothing, until somebody pulls it; the first reason stays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: Interrupted | None = None
        self._listeners: list[Callable[[Interrupted], None]] = []

    @property
    def reason(self) -> Interrupted | None:
        """Why the run must stop; None while it need not."""
        return self._reason

    def pull(self, reason: Interrupted) -> None:
        """Stop the run; may be called from any thread."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            listeners = list(self._listeners)
        for listener in listeners:
            listener(reason)

    def listen(self, listener: Callable[[Interrupted], None]) -> None:
        """Have `listener` called once it is pulled, on the thread that pulls it; at once if it has been."""
        with self._lock:
            self._listeners.append(listener)
            reason = self._reason
        if reason is not None:
            listener(reason)

    def check(self) -> None:
        """Raise the reason, if there is one."""
        if self._reason is not None:
            raise Interrupted(self._reason.status, self._reason.reason)
