"""What the handlers ask of a program, wherever and in whatever language it runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from protocol import Candidate, CandidateItem, Example, Limits, ProgramInfo

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
