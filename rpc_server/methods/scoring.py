"""Scoring what another endpoint's program answered, each result by itself."""

from collections.abc import Sequence

from protocol import Example, JsonValue, Progress
from protocol.errors import CallCancelled
from rpc_server.calls.admission import Admission
from rpc_server.program.program import Program, ResultDict

_SCORINGS_OWN = frozenset(
    {"status", "score", "feedback", "objective_scores", "error", "usage", "seconds"},
)
"""The fields of a scored result that tell of the scoring; all others stay as they came."""

_WAITING = ("rollout", "ok")


class ScoreJob:
    """Results with scores in place of what waits for one; those that failed come back as they were."""

    def __init__(self, program: Program, batch: Sequence[Example], results: Sequence[ResultDict]) -> None:
        self._program = program
        self._results = list(results)
        self._positions = [at for at, result in enumerate(results) if result["status"] in _WAITING]
        self._batch = [batch[at] for at in self._positions]
        self._done = len(results) - len(self._positions)

    @property
    def examples(self) -> int:
        """How much it weighs."""
        return len(self._positions)

    @property
    def progress(self) -> Progress:
        """How much of it is done, in examples."""
        return Progress(done=self._done, total=len(self._results))

    async def run(self, admission: Admission) -> JsonValue:
        """The results, in the order they came."""

        def keep(index: int, scored: ResultDict) -> None:
            at = self._positions[index]
            self._results[at] = _joined(self._results[at], scored)
            self._done += 1
            admission.one_done()

        waiting = [self._results[at] for at in self._positions]
        await self._program.score(self._batch, waiting, on_result=keep)
        return {"results": self._results}

    def cancelled_answer(self) -> JsonValue:
        """There is none."""
        raise CallCancelled


def _joined(result: ResultDict, scored: ResultDict) -> ResultDict:
    if scored["status"] == "rollout":
        error = {"type": "invalid_result", "message": "score answered a result without a score"}
        scored = {"status": "program_error", "score": None, "error": error, "seconds": scored["seconds"]}
    kept = {name: value for name, value in result.items() if name not in _SCORINGS_OWN and value is not None}
    said = {name: value for name, value in scored.items() if name in _SCORINGS_OWN}
    return {**said, "output": None, **kept}
