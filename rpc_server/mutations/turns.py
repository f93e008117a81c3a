"""One at a time for each name, any number of names at the same time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Alone:
    """Locks by name, kept only as long as somebody holds or waits for them."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def at(self, name: str) -> AsyncIterator[None]:
        """Wait until nobody else is at this name."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] = self._users.get(name, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]
