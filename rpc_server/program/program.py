"""The interface of a program, on any machine and in any language."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from protocol import Candidate, CandidateItem, Example, JsonValue, Limits, ProgramInfo
from protocol.errors import TrajectoryExpired
from rpc_server.settings import Settings

ResultDict = dict[str, Any]
"""An `ExampleResult` as JSON, already checked against the contract."""


WRITE_TEXTS = "write_texts"
"""A method between server and program: `call("write_texts", {"candidate"})` makes the program write the texts into its
own folder and return `{"files": [path, ...]}`."""

PROGRAM_CAPABILITIES = frozenset(
    {
        "batch_evaluate",
        "proposals",
        "scoring",
        "score_trajectories",
        "steps",
        "finalize",
        "reflective_datasets",
        "adapter_state",
        "images",
        "refs",
        "untyped_rows",
        "exact_values",
        WRITE_TEXTS,
    }
)
"""The contract's capabilities that a program offers itself, and `write_texts`."""


class Program(Protocol):
    """A running program. Its methods may be called concurrently; it queues what it cannot run at once.

    `info`, `capabilities` (of `PROGRAM_CAPABILITIES`) and `limits` (of all of its processes together) are those of its
    start. `splits`: the number of rows that it holds itself, by split; `call("list_examples", ...)` returns them.
    """

    info: ProgramInfo
    capabilities: frozenset[str]
    limits: Limits
    splits: Mapping[str, int]

    @property
    def ready(self) -> bool:
        """True while the program can answer; reported by `GET /health`."""
        ...

    async def evaluate(
        self,
        candidate: Candidate,
        batch: Sequence[Example],
        *,
        capture_traces: bool,
        items: Sequence[CandidateItem] | None = None,
        timeout_s: float | None = None,
        group: str | None = None,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """Run every example; call `on_result(position, result)` once for each as it finishes, in any order.

        `items` (`batch_evaluate`): the candidates of consecutive examples, in place of `candidate`. Every example has
        `data`. `timeout_s`: of each example, if that is less than `limits.example_timeout_s`. `group` (`refs`): the
        minibatch for which trajectories are kept; without it they are inline. An example's failure is a result.
        Cancelling stops what still runs; earlier results stand.

        Raises:
            ProgramFailed: the program cannot run at all.
        """
        ...

    async def score(
        self,
        batch: Sequence[Example],
        results: Sequence[ResultDict],
        *,
        timeout_s: float | None = None,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """Score outputs made elsewhere (`scoring`), `results[i]` for `batch[i]`; otherwise as `evaluate`."""
        ...

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer `make_reflective_dataset`, `propose_new_texts`, `finalize` or `list_examples`.

        Raises:
            RpcError: the program's own error, or `ProgramFailed` if it died or raised.
        """
        ...

    async def close(self) -> None:
        """End its processes; safe to call twice."""
        ...


def combined_limits(program: Limits, settings: Settings) -> Limits:
    """Return the program's limits within those of the settings, with the server's own. Idempotent.

    `program.max_concurrency`: of all of its processes together.
    """
    deadlines = [limit for limit in (settings.example_timeout_s, program.example_timeout_s) if limit is not None]
    return Limits(
        max_concurrency=min(program.max_concurrency, settings.concurrency),
        max_batch_size=min(program.max_batch_size, settings.max_batch_size),
        max_request_bytes=min(program.max_request_bytes, settings.max_request_bytes),
        example_timeout_s=min(deadlines, default=None),
        max_batch_entries=settings.max_batch_entries,
        whole_batches=program.whole_batches,
        abandon_after_s=settings.abandon_after_s,
        keep_answers_s=settings.keep_answers_s,
        max_result_bytes=min(settings.max_result_bytes, program.max_result_bytes or settings.max_result_bytes),
    )


class ProgramRefs:
    """References of a program that keeps its trajectories itself, prefixed with this instance's id."""

    def __init__(self, instance_id: str) -> None:
        self._prefix = f"{instance_id}/"

    def outgoing(self, result: ResultDict, group: str | None, data: JsonValue = None) -> ResultDict:  # noqa: ARG002  # the program groups
        """Prefix the program's ref."""
        ref = result.get("trajectory_ref")
        return result if ref is None else {**result, "trajectory_ref": self._prefix + ref}

    def traces(self, refs: Sequence[str]) -> list[bytes]:
        """Raise `TrajectoryExpired`: such a program shows no trajectory, and makes its own records."""
        raise TrajectoryExpired(refs=list(refs))

    def incoming(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Remove the prefix; raises `TrajectoryExpired` for another instance's refs."""
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
        """Prefix each ref of the error."""
        refs = error.details.get("refs", [])
        return TrajectoryExpired(error.message, refs=[self._prefix + ref for ref in refs if isinstance(ref, str)])
