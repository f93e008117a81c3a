"""Names to addresses, by this machine's resolver, on threads of the gateway's own."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""All addresses of a host for a port, in the order to be tried. Raises OSError where there is none."""

THREADS = 32


class Resolver:
    """The system's, which may hang: never more than so many threads do."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="gateway-resolver")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """All addresses of the host."""

        def found() -> list[str]:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(info[4][0]) for info in infos))

        return await asyncio.get_running_loop().run_in_executor(self._threads, found)

    def close(self) -> None:
        """Take no more; those under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
