"""The interface of a program, wherever and in whatever language it runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from protocol import Candidate, CandidateItem, Example, Limits, ProgramInfo
from protocol.errors import TrajectoryExpired
from rpc_server.settings.settings import Settings

ResultDict = dict[str, Any]
"""An `ExampleResult` as JSON, already checked against the contract."""


WRITE_TEXTS = "write_texts"
"""What a program offers the server alone: `call("write_texts", {"candidate"})` writes the texts to where it keeps them,
in its own folder, and answers `{"files": [path, ...]}`."""

PROGRAM_CAPABILITIES = frozenset(
    {"batch_evaluate", "proposals", "scoring", "finalize", "adapter_state", "images", "refs", WRITE_TEXTS}
)
"""Those of the contract's capabilities that are the program's own to offer, and that one."""


class Program(Protocol):
    """A running program. Its methods may be called at the same time; it queues what it cannot run at once.

    `info`, `capabilities` and `limits` are as the program described itself at its start; of the contract's capabilities
    only `PROGRAM_CAPABILITIES` appear.
    """

    @property
    def info(self) -> ProgramInfo:
        """Its name, version, components and seed."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """What it offers beyond the core."""
        ...

    @property
    def limits(self) -> Limits:
        """What it bears itself; `max_concurrency` in all of its processes together."""
        ...

    @property
    def splits(self) -> Mapping[str, int]:
        """The rows it holds itself: split -> how many. `call("list_examples", ...)` gives them."""
        ...

    @property
    def ready(self) -> bool:
        """True while the program can answer; `GET /health` tells."""
        ...

    async def evaluate(
        self,
        candidate: Candidate,
        batch: Sequence[Example],
        *,
        capture_traces: bool,
        items: Sequence[CandidateItem] | None = None,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """Run every example, calling `on_result(position, result)` once for each as it finishes, in any order.

        `items` (`batch_evaluate`): the candidates of consecutive examples, in place of `candidate`.

        Every example has `data`: rows the server holds have been filled in. An example's failure is a result.
        Cancelling the coroutine stops what is still running; results given so far stand.

        Raises:
            ProgramFailed: the program cannot run at all.
        """
        ...

    async def score(
        self,
        batch: Sequence[Example],
        results: Sequence[ResultDict],
        *,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """Score outputs made elsewhere (`scoring`), `results[i]` being that of `batch[i]`; else as `evaluate`."""
        ...

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer `make_reflective_dataset`, `propose_new_texts`, `finalize` or `list_examples`.

        Raises:
            RpcError: what the program answered, or `ProgramFailed` where it died or raised.
        """
        ...

    async def close(self) -> None:
        """End its processes; safe to call twice."""
        ...


def combined_limits(program: Limits, settings: Settings) -> Limits:
    """The program's own limits inside those of the settings, with what the server adds. Doing it twice changes nothing.

    `program.max_concurrency`: in all of its processes together.
    """
    most = program.max_concurrency
    deadlines = [limit for limit in (settings.example_timeout_s, program.example_timeout_s) if limit is not None]
    return Limits(
        max_concurrency=most if settings.max_concurrency is None else min(most, settings.max_concurrency),
        max_batch_size=min(program.max_batch_size, settings.max_batch_size),
        max_request_bytes=min(program.max_request_bytes, settings.max_request_bytes),
        example_timeout_s=min(deadlines, default=None),
        max_batch_entries=settings.max_batch_entries,
        whole_batches=program.whole_batches,
        abandon_after_s=settings.abandon_after_s,
        keep_answers_s=settings.keep_answers_s,
        max_result_bytes=min(settings.max_result_bytes, program.max_result_bytes or settings.max_result_bytes),
    )


class TrajectoryRefs(Protocol):
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


class ProgramRefs:
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
