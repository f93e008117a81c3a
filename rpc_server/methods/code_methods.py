"""The interfaces of methods about code, implemented by worktrees and mutations: commits, outlines, mutations."""

from collections.abc import Callable, Sequence
from typing import Protocol

from protocol import ApplyMutationParams, ApplyMutationResult, Candidate, JsonValue, Progress
from protocol.errors import CallCancelled
from rpc_server.calls.admission import Admission


class CommitMethods(Protocol):
    """The commits that candidates may name (capability `commits`)."""

    async def import_commits(self, bundles: Sequence[bytes]) -> list[str]:
        """Import git bundles, parents before children; return the full commit id of each.

        Raises:
            InvalidParams: one is not a bundle, or its parents are missing; those before it stay.
        """
        ...

    async def outline(self, candidate: Candidate) -> str:
        """Return a bounded outline of the candidate's code for a model that requests a change.

        Raises:
            UnknownCandidate: its commit is missing.
        """
        ...


class MutationMethods(Protocol):
    """Changes of code or texts (capability `mutations`), any number at the same time; a bounded number runs."""

    async def apply(self, request: ApplyMutationParams, on_progress: Callable[[str], None]) -> ApplyMutationResult:
        """Make the change as a whole or not at all; `on_progress` receives the current step.

        Cancelling ends everything it started and leaves nothing behind.

        Raises:
            MutationRejected: nothing was changed; with `stage` and `reason`.
            UnknownCandidate: a commit is missing.
            InvalidParams: the name belongs to another mutation.
        """
        ...


class MutationJob:
    """One `apply_mutation` call."""

    examples = 1

    def __init__(self, mutations: MutationMethods, request: ApplyMutationParams) -> None:
        self._mutations = mutations
        self._request = request
        self._message = "waiting for its turn"
        self._done = 0

    @property
    def progress(self) -> Progress:
        """Its current step."""
        return Progress(done=self._done, total=1, message=self._message)

    async def run(self, admission: Admission) -> JsonValue:
        """Return the result as JSON."""
        result = await self._mutations.apply(self._request, self._set_message)
        self._done = 1
        admission.example_finished()
        return result.model_dump(exclude_none=True)

    def cancelled_result(self) -> JsonValue:
        """Raise `CallCancelled`: there is none."""
        raise CallCancelled

    def _set_message(self, message: str) -> None:
        self._message = message
