"""Refuse bodies that are longer than the API reads."""

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 32 << 20
"""Bytes; rows of a request and batches of a journal are shorter."""


class BodyLimit:
    """Middleware that counts what is received. An honest length is refused before anything is read."""

    def __init__(self, app: ASGIApp, largest: int = LARGEST_BODY) -> None:
        self._app = app
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdecimal():
            raise HTTPException(400)
        if len(announced) > 15 or int(announced) > self._largest:
            raise HTTPException(413, headers={"Connection": "close"})
        left = self._largest

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, headers={"Connection": "close"})
            return message

        await self._app(scope, counted, send)
