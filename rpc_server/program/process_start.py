"""Start a program process with `discover`."""

import asyncio
from typing import Any

from pydantic import ValidationError

from evolverpc_common.exact_values import MAX_SAFE_INTEGER
from protocol import CURRENT_VERSION, DiscoverResult
from protocol.errors import ProgramFailed, RpcError
from protocol.over_stdio import filled_discovery
from rpc_server.program.child_process import Exit
from rpc_server.program.launcher import Launcher
from rpc_server.program.process import ProgramProcess
from rpc_server.program.stdio import UnreadableMessage
from rpc_server.wire import first_error

_LIMITS = {"max_batch_size": MAX_SAFE_INTEGER, "max_request_bytes": MAX_SAFE_INTEGER}
"""Those of a program that states none: the server has limits of its own."""

_LEAST = '{"program": {"name": "NAME", "seed_candidate": {"COMPONENT": "TEXT"}}}'


class StartTimedOut(ProgramFailed):
    """It did not start in time; a busy machine may be the cause."""


class NoProcessAvailable(ProgramFailed):
    """The system has no process to give; not the program's fault."""


class Worker:
    """A process that runs requests, and its `discover` result.

    `rows`: how many run in it, of those that it has `received`. `alone`: what it runs is to have no neighbours.
    `spoiled`: what was late or is abandoned may still run in it, so that it takes no more. `restore`: adapter state of
    the process that it replaces, for its first request.
    """

    def __init__(self, process: ProgramProcess, discovery: DiscoverResult) -> None:
        self.process = process
        self.discovery = discovery
        self.room = discovery.limits.max_concurrency
        self.rows = 0
        self.received = 0
        self.alone = False
        self.spoiled = False
        self.restore: Any = None


async def start_process(launcher: Launcher, timeout_s: float) -> Worker:
    """Start a process and wait for its `discover` result.

    Raises:
        StartTimedOut: it took longer than `timeout_s`.
        NoProcessAvailable: the system has none.
        ProgramFailed: it ended before, or its result does not fit the contract.
    """
    process: ProgramProcess | None = None
    try:
        async with asyncio.timeout(timeout_s):
            process = await launcher.launch()
            answer = await process.ask("discover", {}).answer
            if isinstance(answer, Exit) and answer.parent_died:  # by what ran beside it: the next one has a new parent
                await process.end(grace_s=0)
                process = await launcher.launch()
                answer = await process.ask("discover", {}).answer
            return Worker(process, _read(_answered(process, answer)))
    except TimeoutError:
        why = "" if process is None else process.unanswered()
        late = StartTimedOut(f"the program did not start within {timeout_s:g} s{why and f': {why}'}", stage="start")
        raise await _ended(late, process) from None
    except OSError as cause:  # no more descriptors, or processes
        none = NoProcessAvailable(f"cannot start a process: {cause.strerror}", stage="start", retryable=True)
        raise await _ended(none, process) from cause
    except ProgramFailed as error:
        raise await _ended(error, process) from None
    except BaseException:
        if process is not None:
            await process.end(grace_s=0)
        raise


async def _ended(error: ProgramFailed, process: ProgramProcess | None) -> ProgramFailed:
    if process is not None:
        await process.end(grace_s=0)
        error.details.setdefault("log_tail", process.log_tail())
    return error


def _answered(process: ProgramProcess, answer: dict[str, Any] | Exit) -> dict[str, Any]:
    if not isinstance(answer, Exit):
        return answer
    why = process.unanswered()
    raise ProgramFailed(f"the program's process {answer} before it answered{why and f': {why}'}", stage="start")


def _read(message: dict[str, Any]) -> DiscoverResult:
    if "error" in message:
        raise _refusal(message["error"])
    if isinstance(message, UnreadableMessage):
        raise ProgramFailed(f"its answer to discover {message.problem}", stage="discover")
    given = filled_discovery(message.get("result"), _LIMITS)
    try:
        discovery = DiscoverResult.model_validate(given)
    except ValidationError as error:
        reason = f"{first_error(error, given)}; the least is {_LEAST}"
        raise ProgramFailed(f"its answer to discover: {reason}", stage="discover") from None
    if CURRENT_VERSION not in discovery.protocol_versions:
        known = ", ".join(discovery.protocol_versions)
        raise ProgramFailed(f"the program speaks protocol versions {known}, not {CURRENT_VERSION}", stage="discover")
    program = discovery.program
    if {part.name for part in program.components} != set(program.seed_candidate):
        raise ProgramFailed("its components and its seed_candidate differ", stage="discover")
    if not program.components and "scoring" not in discovery.capabilities:
        raise ProgramFailed("it has no components, and does not score what others answer either", stage="discover")
    idle = {"refs", "adapter_state"} & {*discovery.capabilities}
    if idle and "reflective_datasets" not in discovery.capabilities:
        offered = ", ".join(sorted(idle))
        raise ProgramFailed(f"it offers {offered}, which need `reflective_datasets` over stdio", stage="discover")
    return discovery


def _refusal(given: Any) -> ProgramFailed:
    if isinstance(given, dict):
        error = RpcError.from_wire(given)
        if isinstance(error, ProgramFailed):
            return error
        return ProgramFailed(f"it refused discover: {error.message}", stage="discover", program_error=error.to_wire())
    return ProgramFailed("it refused discover", stage="discover")
