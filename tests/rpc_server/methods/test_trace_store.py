"""Trajectories that a server keeps are those used last, within its limit of bytes."""

import pytest

from protocol.errors import TrajectoryExpired
from rpc_server.methods.trace_store import TraceStore


def test_as_many_older_groups_go_as_a_new_trajectory_needs() -> None:
    store = TraceStore(instance_id="i", max_bytes=5_000)

    def keep(group: str, size: int) -> str:
        return str(store.outgoing({"trajectory": "x" * size}, group)["trajectory_ref"])

    a, b, c = [keep(group, 1_000) for group in "abc"]
    store.traces([b])
    more = keep("a", 1_500)  # of the oldest group, which is the one used last by that
    assert store.incoming([{"trajectory_ref": ref} for ref in (b, a, more)])[2] == {"trajectory": "x" * 1_500}
    large = keep("d", 3_000)
    assert store.incoming([{"trajectory_ref": large}]) == [{"trajectory": "x" * 3_000}]
    for ref in (a, b, c, more):
        with pytest.raises(TrajectoryExpired):
            store.traces([ref])
