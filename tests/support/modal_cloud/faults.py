"""The faults of the loopback Modal."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from grpclib import GRPCError, Status
from modal_proto import api_pb2


@dataclass
class Faults:
    """Set by tests at any time.

    `create_hangs`: a sandbox is made and its creation never answered; `created` is set when that has happened.
    `exec_never_ends`: no end of a command is reported.
    """

    create_hangs: bool = False
    exec_never_ends: bool = False
    created: asyncio.Event = field(default_factory=asyncio.Event)
    seen: Counter[str] = field(default_factory=Counter)
    _failing: dict[tuple[str, bool], list[GRPCError]] = field(default_factory=dict)
    _always: dict[tuple[str, bool], GRPCError] = field(default_factory=dict)

    def fail(
        self, method: str, status: Status, times: int | None = 1, *, done: bool = False, retry_after_s: float = 0.0
    ) -> None:
        """The next `times` calls of this RPC are answered with this status; None: every one.

        `done`: what was asked is done all the same. `retry_after_s`: the delay that the client is asked for, if any.
        """
        details = [api_pb2.RPCRetryPolicy(retry_after_secs=retry_after_s)] if retry_after_s else None
        error = GRPCError(status, f"injected: {status.name}", details)
        if times is None:
            self._always[method, done] = error
        else:
            self._failing.setdefault((method, done), []).extend([error] * times)

    def check(self, method: str, *, done: bool) -> None:
        """Raise what this call is to be answered with, if anything; asked before and after it is done."""
        waiting = self._failing.get((method, done))
        error = waiting.pop(0) if waiting else self._always.get((method, done))
        if error is not None:
            self.seen[method] += 1
            raise error
