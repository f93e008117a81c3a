"""Trajectories kept on the server: a reference goes out in place of each, and comes back for reflection."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from protocol import JsonValue
from protocol.errors import LimitExceeded, TrajectoryExpired
from rpc_server import wire
from rpc_server.program.program import ProgramRefs, ResultDict

_ENTRY_BYTES = 256
"""Approximate bytes of an entry beyond its content, so that many small ones are bounded too."""


class TraceStore:
    """The references of a program that returns its trajectories: those of a named group are kept here.

    At most `max_bytes` in all. Whole groups (minibatches) are evicted, least recently used first, as half a minibatch
    cannot be reflected on.
    """

    def __init__(self, *, instance_id: str, max_bytes: int) -> None:
        self._prefix = f"{instance_id}/t"
        self._max_bytes = max_bytes
        self._groups: OrderedDict[str, dict[str, bytes]] = OrderedDict()
        self._group_of: dict[str, str] = {}
        self._bytes = 0
        self._made = 0

    def outgoing(self, result: ResultDict, group: str | None, data: JsonValue = None) -> ResultDict:
        """Replace the trajectory by a ref, if a group (a minibatch) is named and there is room.

        `data`: of the example, if the client cannot have it; kept with the trajectory.
        """
        trajectory = result.get("trajectory")
        if group is None or (trajectory is None and data is None):
            return result
        ref = self._keep(
            group, {"trajectory": trajectory} if data is None else {"trajectory": trajectory, "data": data}
        )
        if ref is None:
            return result
        rest = {key: value for key, value in result.items() if key != "trajectory"}
        length = {"trajectory_length": len(trajectory)} if isinstance(trajectory, list | dict) else {}
        return {**rest, "trajectory_ref": ref, **length}

    def expired(self, error: TrajectoryExpired) -> TrajectoryExpired:
        """Return the error unchanged: such a program knows no refs."""
        return error

    def _keep(self, group: str, trace: JsonValue) -> str | None:
        """Keep a trace; return its ref, or None if it or its group is too large."""
        try:
            text = wire.write_to_keep(trace)
        except LimitExceeded:
            return None
        size = len(text) + _ENTRY_BYTES
        if _size(self._groups.get(group, {})) + size > self._max_bytes:
            return None
        kept = self._groups.setdefault(group, {})
        # Most recently used, so that others are evicted below.
        self._groups.move_to_end(group)
        while self._bytes + size > self._max_bytes:
            self._evict_oldest()
        self._made += 1
        ref = f"{self._prefix}{self._made}"
        kept[ref] = text
        self._group_of[ref] = group
        self._bytes += size
        return ref

    def traces(self, refs: Sequence[str]) -> list[bytes]:
        """Return what is kept for each ref, as JSON: a `Trace` of the contract.

        Raises:
            TrajectoryExpired: some of the `refs` were evicted, or belong to another instance.
        """
        lost = [ref for ref in refs if ref not in self._group_of]
        if lost:
            raise TrajectoryExpired(refs=lost)
        for ref in refs:
            self._groups.move_to_end(self._group_of[ref])
        return [self._groups[self._group_of[ref]][ref] for ref in refs]

    def incoming(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Replace refs by trajectories; raises `TrajectoryExpired` as `traces`."""
        refs = [ref for result in results if (ref := result.get("trajectory_ref")) is not None]
        kept = dict(zip(refs, self.traces(refs), strict=True))
        return [
            {
                **{key: value for key, value in result.items() if key != "trajectory_ref"},
                "trajectory": wire.read(kept[ref])["trajectory"],
            }
            if (ref := result.get("trajectory_ref")) is not None
            else result
            for result in results
        ]

    def _evict_oldest(self) -> None:
        _, group = self._groups.popitem(last=False)
        self._bytes -= _size(group)
        for ref in group:
            del self._group_of[ref]


def _size(group: dict[str, bytes]) -> int:
    """Return the bytes of a minibatch's trajectories, each as JSON by its ref."""
    return sum(len(text) + _ENTRY_BYTES for text in group.values())


TrajectoryRefs = TraceStore | ProgramRefs
"""Makes and resolves an instance's trajectory references."""
