"""Trajectories that a server keeps are those used last, within its limit of bytes."""

import pytest

from protocol.errors import TrajectoryExpired
from rpc_server.methods.trace_store import TraceStore


def test_as_many_older_groups_go_as_a_new_trajectory_needs() -> None:
    store = TraceStore(instance_id="i", max_bytes=5_000)

    def keep(group: str, size: int) -> str:
        return str(store.outgoing({"trajectory": "x" * size}, group)["trajectory_ref"])

    older = [keep(group, 1_000) for group in "abc"]
    store.traces(older[:1])
    large = keep("d", 3_000)
    assert store.incoming([{"trajectory_ref": ref} for ref in (older[0], large)])[1] == {"trajectory": "x" * 3_000}
    for ref in older[1:]:
        with pytest.raises(TrajectoryExpired):
            store.traces([ref])
