"""The keys of open streams: each is checked again every few seconds, once for all streams that were opened with it."""

import asyncio
import logging
import time

from fastapi import Request

from gepa_service.api.access import TENANT_HEADER, recognized_now
from gepa_service.auth.oidc import IssuerUnavailable
from gepa_service.records.store import RecordsUnavailable

_log = logging.getLogger(__name__)

CHECK_S = 2.0
"""Seconds between two checks of a key."""

CREDENTIALS = ("authorization", "cookie", TENANT_HEADER)


class CheckedKeys:
    """All keys that were checked lately. Used on one event loop."""

    def __init__(self) -> None:
        self._checks: dict[tuple[str | None, ...], tuple[float, asyncio.Task[bool]]] = {}

    async def accept(self, request: Request) -> bool:
        """Return whether the key of a request is valid, as of at most `CHECK_S` ago."""
        sent, moment = tuple(request.headers.get(name) for name in CREDENTIALS), time.monotonic()
        if sent not in self._checks or moment - self._checks[sent][0] >= CHECK_S:
            self._checks = {key: check for key, check in self._checks.items() if moment - check[0] < CHECK_S}
            self._checks[sent] = moment, asyncio.create_task(_is_valid(request))
        return await asyncio.shield(self._checks[sent][1])


async def _is_valid(request: Request) -> bool:
    try:
        return await recognized_now(request) is not None
    except (RecordsUnavailable, IssuerUnavailable):  # the next check decides
        return True
    except Exception:  # noqa: BLE001 - a key that cannot be checked is not valid
        _log.exception("the key of a stream cannot be checked: it ends")
        return False
