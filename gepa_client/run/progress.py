"""Tells how many examples are done and in flight, read at regular moments rather than when something happens."""

import threading
from types import TracebackType
from typing import Self

from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.journal.run_events import Emit, Progress
from gepa_client.run.gateway import GatewayRecord

EVERY_S = 0.1


class Pulse:
    """Emits a `progress` event a few times a second, as long as the figures change; none after its `with` block.

    A reading taken as examples finish would be of the one moment when their places in the window are empty. `gateway`:
    what it has heard is told along with it.
    """

    def __init__(self, adapter: RemoteAdapter, emit: Emit, gateway: GatewayRecord) -> None:
        self._adapter = adapter
        self._gateway = gateway
        self._emit = emit
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        told = Progress(evaluated=0, in_flight=0)
        over = False
        while not over:
            over = self._over.wait(EVERY_S)  # the last reading comes after everything has ended
            endpoints = self._adapter.fleet.endpoints
            reading = Progress(
                evaluated=self._adapter.tally.examples,
                in_flight=self._adapter.in_flight,
                up=sum(not endpoint.resting for endpoint in endpoints),
                endpoints=len(endpoints),
                slots=self._adapter.fleet.slots,
                waiting=self._adapter.fleet.waiting,
                spent_usd=round(self._adapter.journal.spend.cost_usd, 6),
            )
            if reading != told:
                told = reading
                self._emit(reading)
            if (news := self._gateway.news(at_once=over)) is not None:
                self._emit(news)
