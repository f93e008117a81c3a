"""Headers that keep browsers from misusing responses, and the check of the name that a request was sent to."""

import urllib.parse

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evolverpc_common.network_addresses import is_loopback
from gepa_service.api.problems import Problem

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
POLICY = "default-src 'none'; frame-ancestors 'none'"
"""Of responses that set no policy of their own."""

ALWAYS = ("/health", "/ready", "/metrics")
"""Asked for by the address of the machine."""


class Safety:
    """Middleware. `public_url`: the host of other requests is refused; empty: any host is accepted."""

    def __init__(self, app: ASGIApp, public_url: str) -> None:
        self._app = app
        parts = urllib.parse.urlsplit(public_url)
        self._host = (parts.hostname or "").lower()
        self._https = parts.scheme == "https"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Content-Security-Policy", POLICY)
                headers.setdefault("Cache-Control", "no-store")
                if self._https:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        if not self._is_ours(scope):
            problem = Problem(
                421, "wrong-host", "Wrong host", f"this service is reached as {self._host}: send the request there"
            )
            await problem.response()(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _is_ours(self, scope: Scope) -> bool:
        given = Headers(scope=scope).get("host", "")
        try:
            host = (urllib.parse.urlsplit(f"//{given}").hostname or "").lower()
        except ValueError:
            return False
        return not self._host or host == self._host or is_loopback(host) or scope["path"] in ALWAYS
