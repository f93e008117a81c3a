"""Refuse bodies that are longer than the API reads."""

import re

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gepa_client.journal.http_messages import LARGEST_REQUEST

LARGEST_BODY = 32 << 20
"""Bytes; rows of a request are shorter."""

OF_PROCESSES = re.compile(r"/job/[^/]+/(journal|attempt)/[a-z_]+")
"""The paths whose bodies hold results of a program, up to `LARGEST_REQUEST`; all need a process's token."""


class BodyLimit:
    """Middleware that counts what is received. An honest length is refused before anything is read."""

    def __init__(self, app: ASGIApp, largest: int = LARGEST_BODY) -> None:
        self._app = app
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        largest = LARGEST_REQUEST if OF_PROCESSES.fullmatch(scope["path"]) else self._largest
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdecimal():
            raise HTTPException(400)
        if len(announced) > 15 or int(announced) > largest:
            raise HTTPException(413, headers={"Connection": "close"})
        left = largest

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, headers={"Connection": "close"})
            return message

        await self._app(scope, counted, send)
