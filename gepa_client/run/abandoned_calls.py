"""Gives up what is in flight when the money is spent: a call of a model that is held has its example wait for ever."""

import threading
from types import TracebackType
from typing import Self

from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.run.gateway import GatewayRecord

QUIET_S = 5.0
"""Seconds without a call of a model that ended, after which those that are left are held."""

LONGEST_S = 60.0
"""Seconds after which they are given up although calls keep ending."""

LOOK_S = 0.2


class Abandoning:
    """What needs no further model comes to its end and is recorded; then the rest is lost, and nothing of it counts.

    Otherwise a program whose call is held would fail its example in time, and that failure have a score.
    """

    def __init__(self, adapter: RemoteAdapter, gateway: GatewayRecord) -> None:
        self._adapter = adapter
        self._gateway = gateway
        self._spent = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="abandoning", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._spent.set()
        self._thread.join()

    def spent(self) -> None:
        """Nothing new is begun any more, and no model is called; from any thread, and again."""
        self._spent.set()

    def _watch(self) -> None:
        self._spent.wait()
        waited_s = 0.0
        while min(self._gateway.quiet_for(), waited_s) < QUIET_S and waited_s < LONGEST_S:
            if self._over.wait(LOOK_S):
                return
            waited_s += LOOK_S
        if not self._over.is_set():
            self._adapter.abandon("the money is spent, and what still needs a model never ends")
