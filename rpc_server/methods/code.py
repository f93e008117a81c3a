"""What the handlers ask where a program's code evolves: commits from elsewhere, outlines, mutations."""

from collections.abc import Callable, Sequence
from typing import Protocol

from protocol import ApplyMutationParams, ApplyMutationResult, Candidate, JsonValue, Progress
from protocol.errors import CallCancelled
from rpc_server.calls.admission import Admission


class Commits(Protocol):
    """The commits that candidates may name (capability `commits`)."""

    async def import_commits(self, bundles: Sequence[bytes]) -> list[str]:
        """Take over git bundles, parents before children; the full commit id of each.

        Raises:
            InvalidParams: one is no bundle, or its parents are not here; those before it stay.
        """
        ...

    async def outline(self, candidate: Candidate) -> str:
        """What a model should know of the candidate's code before it asks for a change; bounded.

        Raises:
            UnknownCandidate: its commit is not here.
        """
        ...


class Mutations(Protocol):
    """Changes of code or texts (capability `mutations`), any number at the same time; more than it bears wait."""

    async def apply(self, request: ApplyMutationParams, on_progress: Callable[[str], None]) -> ApplyMutationResult:
        """Make the change, all of it or nothing. `on_progress` is called with what it is at, in a few words.

        Cancelling the coroutine ends everything it started and leaves nothing behind.

        Raises:
            MutationRejected: nothing was changed; with `stage` and `reason`.
            UnknownCandidate: a commit is not here. InvalidParams: the name stands for another mutation.
        """
        ...


class MutationJob:
    """One `apply_mutation` call."""

    examples = 1

    def __init__(self, mutations: Mutations, request: ApplyMutationParams) -> None:
        self._mutations = mutations
        self._request = request
        self._message = "waiting for its turn"
        self._done = 0

    @property
    def progress(self) -> Progress:
        """What it is at."""
        return Progress(done=self._done, total=1, message=self._message)

    async def run(self, admission: Admission) -> JsonValue:
        """The result as JSON."""
        result = await self._mutations.apply(self._request, self._set_message)
        self._done = 1
        admission.example_finished()
        return result.model_dump(exclude_none=True)

    def cancelled_result(self) -> JsonValue:
        """There is none."""
        raise CallCancelled

    def _set_message(self, message: str) -> None:
        self._message = message
