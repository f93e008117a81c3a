"""Call what blocks, such as a store, without holding up other requests."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what the function returns, which runs in a thread."""
    result: T = await run_in_threadpool(call, *args, **kwargs)
    return result
