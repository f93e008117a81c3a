"""One process, started and asked to describe itself, in bounded time."""

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from protocol import CURRENT_VERSION, DiscoverResult
from protocol.errors import ProgramFailed, RpcError
from rpc_server.program.launch import Launcher
from rpc_server.program.process import ProgramProcess

_TRIES = 3


class StartTimedOut(ProgramFailed):
    """It did not start in time, which a busy machine can be the cause of."""


class NoProcess(ProgramFailed):
    """The system gives no process, which is no fault of the program's."""


@dataclass(frozen=True)
class Started:
    """A process that can answer, and what it said of itself."""

    process: ProgramProcess
    discovery: DiscoverResult


async def start_process(launcher: Launcher, timeout_s: float) -> Started:
    """A process that has answered `discover`.

    Raises:
        StartTimedOut: it did not come to that within `timeout_s`.
        NoProcess: the system gives none.
        ProgramFailed: it ended before, or what it said does not fit the contract.
    """
    process: ProgramProcess | None = None
    try:
        async with asyncio.timeout(timeout_s):
            for _ in range(_TRIES):
                process = await launcher.launch()
                message = await _ask_discover(process)
                if message is not None:
                    return Started(process, _read(message))
        raise ProgramFailed("the process it is forked from keeps ending", stage="start")
    except TimeoutError:
        late = StartTimedOut(f"the program did not start within {timeout_s:g} s", stage="start")
        raise await _ended(late, process) from None
    except OSError as cause:  # no more descriptors, or processes
        none = NoProcess(f"cannot start a process: {cause.strerror}", stage="start", retryable=True)
        raise await _ended(none, process) from cause
    except ProgramFailed as error:
        raise await _ended(error, process) from None
    except BaseException:
        if process is not None:
            await process.end(polite_s=0)
        raise


async def _ended(error: ProgramFailed, process: ProgramProcess | None) -> ProgramFailed:
    if process is not None:
        await process.end(polite_s=0)
        error.details.setdefault("log_tail", process.log_since())
    return error


async def _ask_discover(process: ProgramProcess) -> dict[str, Any] | None:
    """The answer; None where the process ended through no fault of its own, so that another may do better."""
    answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    process.request("discover", {}, lambda message: None if answer.done() else answer.set_result(message))
    either: set[asyncio.Future[Any]] = {answer, process.exited}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if answer.done():
        return answer.result()
    how = process.exited.result()
    if how.blameless:
        return None
    raise ProgramFailed(f"the program's process {how} before it answered", stage="start")


def _read(message: dict[str, Any]) -> DiscoverResult:
    if "error" in message:
        raise _refusal(message["error"])
    try:
        discovery = DiscoverResult.model_validate(message.get("result"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the answer"
        raise ProgramFailed(f"its answer to discover: {where}: {first['msg']}", stage="discover") from None
    if CURRENT_VERSION not in discovery.protocol_versions:
        known = ", ".join(discovery.protocol_versions)
        raise ProgramFailed(f"the program speaks protocol versions {known}, not {CURRENT_VERSION}", stage="discover")
    program = discovery.program
    if {part.name for part in program.components} != set(program.seed_candidate):
        raise ProgramFailed("its components and its seed_candidate differ", stage="discover")
    if not program.components and "scoring" not in discovery.capabilities:
        raise ProgramFailed("it has no components, and does not score what others answer either", stage="discover")
    return discovery


def _refusal(given: Any) -> ProgramFailed:
    if isinstance(given, dict):
        error = RpcError.from_wire(given)
        if isinstance(error, ProgramFailed):
            return error
        return ProgramFailed(f"it refused discover: {error.message}", stage="discover", program_error=error.to_wire())
    return ProgramFailed("it refused discover", stage="discover")
