"""The keys of open streams: each is checked again every few seconds, once for all streams that were opened with it."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from fastapi import Request

from gepa_service.api.access import TENANT_HEADER, recognized_now
from gepa_service.auth.oidc import IssuerUnavailable
from gepa_service.records.store import RecordsUnavailable

_log = logging.getLogger(__name__)

CHECK_S = 2.0
"""Seconds between two checks of a key."""

CREDENTIALS = ("authorization", "cookie", TENANT_HEADER)


class CheckedKey:
    """A key of open streams. `is_valid`: False once a check has refused it; what waits in `waiting` is woken then."""

    def __init__(self, request: Request) -> None:
        self.is_valid = True
        self.waiting: set[asyncio.Event] = set()
        self.task = asyncio.get_running_loop().create_task(self._check(request))

    async def _check(self, request: Request) -> None:
        try:
            while self.is_valid:
                await asyncio.sleep(CHECK_S)
                with contextlib.suppress(RecordsUnavailable, IssuerUnavailable):  # the next check decides
                    self.is_valid = await recognized_now(request) is not None
        except Exception:  # noqa: BLE001 - a key that cannot be checked is not valid
            _log.exception("the key of streams cannot be checked: they end")
        self.is_valid = False
        for woken in self.waiting:
            woken.set()


class CheckedKeys:
    """All keys that are checked. Used on one event loop."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str | None, ...], CheckedKey] = {}

    @contextlib.contextmanager
    def of(self, request: Request, woken: asyncio.Event) -> Iterator[CheckedKey]:
        """Check the key of a request, which was valid when the stream began; set `woken` once it is not."""
        sent = tuple(request.headers.get(name) for name in CREDENTIALS)
        key = self._keys.get(sent)
        if key is None or not key.is_valid:
            key = self._keys[sent] = CheckedKey(request)
        key.waiting.add(woken)
        try:
            yield key
        finally:
            key.waiting.discard(woken)
            if not key.waiting:
                key.task.cancel()
                if self._keys.get(sent) is key:
                    del self._keys[sent]
