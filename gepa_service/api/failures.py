"""Answer what no handler answered: databases that are away, and unexpected exceptions, also those of middleware."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gepa_service.api.problems import problem_of


class Failures:
    """Middleware. A response that has begun cannot be replaced: its connection is cut off."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        begun = False

        async def observed(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, observed)
        except Exception as error:
            problem = problem_of(error, Headers(scope=scope).get("content-type", ""))
            if begun:
                raise
            await problem.response()(scope, receive, send)
