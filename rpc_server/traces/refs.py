"""Trajectories on their way out and back in: who keeps them decides what a ref means."""

from typing import Any, Protocol

from protocol.errors import TrajectoryExpired
from rpc_server.program.program import ResultDict


class Refs(Protocol):
    """How an instance's refs are made and read."""

    def outgoing(self, result: ResultDict, group: str | None) -> ResultDict:
        """The result as the client shall see it."""
        ...

    def incoming(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The results as the program shall see them.

        Raises:
            TrajectoryExpired: with the `refs` that mean nothing here.
        """
        ...

    def expired(self, error: TrajectoryExpired) -> TrajectoryExpired:
        """The program's own complaint, in the refs the client knows."""
        ...


class KeptByProgram:
    """The program keeps its trajectories itself; its refs get this instance's name in front."""

    def __init__(self, instance_id: str) -> None:
        self._prefix = f"{instance_id}/"

    def outgoing(self, result: ResultDict, group: str | None) -> ResultDict:  # noqa: ARG002  # the program groups
        """The program's ref under this instance's name."""
        ref = result.get("trajectory_ref")
        return result if ref is None else {**result, "trajectory_ref": self._prefix + ref}

    def incoming(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The program's own refs; raises `TrajectoryExpired` for another instance's."""
        refs = [result["trajectory_ref"] for result in results if result.get("trajectory_ref") is not None]
        lost = [ref for ref in refs if not ref.startswith(self._prefix)]
        if lost:
            raise TrajectoryExpired(refs=lost)
        return [
            {**result, "trajectory_ref": result["trajectory_ref"].removeprefix(self._prefix)}
            if result.get("trajectory_ref") is not None
            else result
            for result in results
        ]

    def expired(self, error: TrajectoryExpired) -> TrajectoryExpired:
        """The complaint with this instance's name before each ref."""
        refs = error.details.get("refs", [])
        return TrajectoryExpired(error.message, refs=[self._prefix + ref for ref in refs if isinstance(ref, str)])
