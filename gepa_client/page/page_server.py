"""Serve the page of the runs of one store, to browsers of this machine alone.

The address holds a token in its fragment, which no request and no log has; the page exchanges it for a cookie and a
key.

- Reading needs the cookie. It keeps out other users of this machine, and programs that were not given the address.
  Browsers send the cookies of 127.0.0.1 to every port: another local server whose page this browser opens
  receives it, and can read the runs until this server ends.
- Steering needs the key too, in a header. The page keeps it in its `sessionStorage`, which pages of other ports cannot
  read, so that a stolen cookie changes nothing.
- `Host` and `Origin` are checked, so that no page of another site, and no name that resolves to this machine, reaches
  the run.
"""

import asyncio
import contextlib
import functools
import hmac
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import orjson
from aiohttp import web

from evolverpc_common.open_connections import CountedConnection, OpenConnections
from gepa_client.errors import JournalError, NoSuchRun, RequestExists, SteeringRefused, StoreUnavailable
from gepa_client.journal.store import Store, find_run, open_store
from gepa_client.page.built_page import ASSETS, POLICY
from gepa_client.page.candidate_details import NotThere
from gepa_client.page.event_log import EventLog, to_json
from gepa_client.page.run_details import DETAILS, BadQuery, RunDetails
from gepa_client.page.run_list import runs
from gepa_client.page.run_reader import WatchedRuns
from gepa_client.steering.user_requests import post_request

T = TypeVar("T")

_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
TOKEN_BYTES = 24
KEY_HEADER = "X-EvolveRPC-Key"
LARGEST_SESSION = 1 << 10
"""Bytes of a request for a session."""

LARGEST_REQUEST = 8 << 20
"""Bytes of any other; a text proposed by hand may have a megabyte."""

BACKLOG = 32
"""Connections that wait to be accepted; asyncio accepts as many at once, each with a file descriptor."""

REQUEST_S = 10.0
"""Seconds in which the head of a request must arrive, and then its body."""

LINGER_S = 1.0
"""Seconds for which the rest of a refused body is read, so that its sender receives the answer."""

PING_S = 15.0
"""Seconds after which a silent stream sends a comment, so that both sides notice a lost connection."""

SENT_AT_ONCE = 1 << 20
"""Bytes of events in one write."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageServer:
    """The application. `url`: of the store; `page`: the files of `built_page`; `token`: what the address holds."""

    def __init__(self, url: str, page: dict[str, bytes]) -> None:
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self._url, self._page = url, page
        self._key = secrets.token_urlsafe(TOKEN_BYTES)
        self._session = secrets.token_urlsafe(TOKEN_BYTES)
        self._host = ""
        self._watched = WatchedRuns(url)
        self._store: Store | None = None
        # one thread: a store's connection has one reader at a time, and the page asks for one thing at a time
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="details")

    def application(self) -> web.Application:
        """Return the application; `listens_at` names its port before the first request."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", self._index)
        app.router.add_get("/assets/{name}", self._asset)
        app.router.add_post("/session", self._open_session)
        app.router.add_get("/api/runs", self._runs)
        run = "/api/runs/{run}"
        app.router.add_get(run, self._run)
        app.router.add_get(f"{run}/events", self._events)
        app.router.add_get(f"{run}/{{detail:{'|'.join(DETAILS)}}}", self._detail)
        app.router.add_post(f"{run}/steer", self._post_steer)
        app.cleanup_ctx.append(self._stores)
        return app

    def listens_at(self, port: int) -> None:
        """Set the port, which browsers repeat in `Host` and `Origin`."""
        self._host = f"{LOOPBACK}:{port}"

    def address(self, run_id: str | None) -> str:
        """Return the address to open; `run_id`: the run that it shows first."""
        run = f"&run={run_id}" if run_id is not None else ""
        return f"http://{self._host}/#token={self.token}{run}"

    def read_ahead(self, run_id: str) -> None:
        """Begin to read a run before a page asks for it, while its browser starts."""
        self._watched.get(run_id)

    async def _stores(self, _app: web.Application) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(self._watched.close)
        if self._store is not None:
            self._store.close()
        self._reader.shutdown()

    # --- who may ask -------------------------------------------------------------------------------------------------

    @property
    def _cookie(self) -> str:
        """The cookie's name: cookies of one host are sent to all of its ports."""
        return f"evolverpc_page_{self._host.rpartition(':')[2]}"

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        response: web.StreamResponse
        try:
            response = self._refused(request) or await handler(request)
        except web.HTTPException as error:
            response = _error(error.status, error.reason)
        except (NotThere, NoSuchRun) as error:
            response = _error(404, str(error))
        except BadQuery as error:
            response = _error(400, str(error))
        except StoreUnavailable as error:
            response = _error(503, str(error))
        except JournalError as error:
            response = _error(500, str(error))
        except Exception:  # noqa: BLE001 - an answer of aiohttp would have none of the headers
            _log.exception("the page's request for %s failed", request.path)
            response = _error(500, "the server of the page failed; its output states why")
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _refused(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Host") != self._host:
            return _error(421, f"this server answers at http://{self._host} only")
        origin = request.headers.get("Origin")
        if (request.method not in ("GET", "HEAD") or origin is not None) and origin != f"http://{self._host}":
            return _error(403, "a page of another origin asked")
        if request.path != "/" and request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            return _error(403, "a page of another site asked")
        if request.path == "/" or request.path == "/session" or request.path.startswith("/assets/"):
            return None
        if not _same(request.cookies.get(self._cookie), self._session):
            return _error(401, "open the address that evolverpc watch prints, with its token")
        if request.method not in ("GET", "HEAD") and not _same(request.headers.get(KEY_HEADER), self._key):
            return _error(403, "only the page at the address that evolverpc watch prints may steer: open it again")
        return None

    async def _open_session(self, request: web.Request) -> web.Response:
        read = await _posted(request, LARGEST_SESSION)
        if not _same(read.get("token") if isinstance(read, dict) else None, self.token):
            return _error(403, "the token is not the one that evolverpc watch printed")
        response = _json({"key": self._key})
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="Strict", path="/")
        return response

    # --- the page ----------------------------------------------------------------------------------------------------

    async def _index(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._page["index.html"], content_type="text/html", charset="utf-8")

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in ASSETS:
            raise web.HTTPNotFound
        return web.Response(body=self._page[name], content_type=ASSETS[name], charset="utf-8")

    # --- runs --------------------------------------------------------------------------------------------------------

    async def _runs(self, _request: web.Request) -> web.Response:
        return _json(await self._read(runs))

    async def _run(self, request: web.Request) -> web.Response:
        return _json({"run_id": await self._run_id(request)})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        log = self._watched.get(await self._run_id(request)).log
        woken = asyncio.Event()
        stop = log.listen(woken)  # before anything is awaited: a run that no page follows is not read for ever
        try:
            return await self._stream(request, log, woken)
        finally:
            stop()

    async def _stream(self, request: web.Request, log: EventLog, woken: asyncio.Event) -> web.StreamResponse:
        given = request.headers.get("Last-Event-ID") or request.query.get("last") or ""
        read = re.fullmatch(r"([0-9a-f]+)-(\d{1,18})", given)
        same = read is not None and read[1] == log.epoch
        number = int(read[2]) + 1 if read is not None and same else 0
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        if given and not same:
            await response.write(b"event: reset\ndata: {}\n\n")
        try:
            while True:
                woken.clear()
                found, number = log.since(number, SENT_AT_ONCE)
                if found:
                    epoch = log.epoch.encode()
                    await response.write(b"".join(b"id: %s-%d\ndata: %s\n\n" % (epoch, at, data) for at, data in found))
                    continue
                try:
                    await asyncio.wait_for(woken.wait(), PING_S)
                except TimeoutError:
                    await response.write(b": nothing new\n\n")
        except (ConnectionError, asyncio.CancelledError):
            pass  # the page was closed, or the server ends
        return response

    async def _detail(self, request: web.Request) -> web.Response:
        run_id = await self._run_id(request)
        watched = self._watched.get(run_id)

        def read(store: Store) -> object:
            details = watched.details = watched.details or RunDetails(store, run_id)
            return details.read(request.match_info["detail"], request.query)

        return _json(await self._read(read))

    async def _post_steer(self, request: web.Request) -> web.Response:
        run_id = await self._run_id(request)
        asked = await _posted(request, LARGEST_REQUEST)
        try:
            return _json(await self._read(lambda store: post_request(store, run_id, asked)))
        except ValueError as error:
            return _error(400, str(error))
        except RecursionError:
            return _error(400, "the request is nested too deeply")
        except (SteeringRefused, RequestExists) as error:
            return _error(409, str(error))

    async def _run_id(self, request: web.Request) -> str:
        """Return the id of the run that the path names, or of the `last` one."""
        given = request.match_info["run"]
        if given in self._watched:
            return given
        return await self._read(lambda store: find_run(store, given).id)

    async def _read(self, work: Callable[[Store], T]) -> T:
        """Read the store on the thread for it."""

        def call() -> T:
            if self._store is None:
                self._store = open_store(self._url)
            return work(self._store)

        return await asyncio.get_running_loop().run_in_executor(self._reader, call)


@contextlib.asynccontextmanager
async def serving(server: PageServer, port: int = 0) -> AsyncIterator[int]:
    """Serve during the block; yield the port. Raises `OSError` if the port is taken."""
    runner = web.AppRunner(server.application(), shutdown_timeout=1.0)
    await runner.setup()
    server_of_http = cast("web.Server", runner.server)  # there is one after the setup
    connected = functools.partial(_PageConnection, server_of_http, OpenConnections())
    try:
        listening = await asyncio.get_running_loop().create_server(connected, LOOPBACK, port, backlog=BACKLOG)
        try:
            bound: int = listening.sockets[0].getsockname()[1]
            server.listens_at(bound)
            yield bound
        finally:
            listening.close()
    finally:
        await runner.cleanup()


class _PageConnection(CountedConnection):
    """A connection that is closed if no head of a request arrives in time."""

    __slots__ = ()

    def __init__(self, server: web.Server, connections: OpenConnections) -> None:
        super().__init__(
            connections,
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,
            keepalive_timeout=REQUEST_S,
            lingering_time=LINGER_S,
        )

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        del request, exc, message  # the message may repeat what was sent
        answer = _error(status, "this is no request of HTTP")
        answer.force_close()
        return answer


async def _posted(request: web.Request, largest: int) -> Any:
    """Return the body of a request, JSON in UTF-8 of `largest` bytes at most. Raises `web.HTTPException`."""
    body = bytearray()
    try:
        async with asyncio.timeout(REQUEST_S):
            async for part in request.content.iter_any():
                body += part
                if len(body) > largest:
                    message = f"the body of this request may have {largest:,} bytes"
                    raise web.HTTPRequestEntityTooLarge(largest, len(body), reason=message)
        return orjson.loads(body)
    except TimeoutError:
        raise web.HTTPRequestTimeout(reason=f"the body did not arrive within {REQUEST_S:g} s") from None
    except (web.RequestPayloadError, ConnectionError):
        raise web.HTTPBadRequest(reason="the body did not arrive") from None
    except orjson.JSONDecodeError as error:
        raise web.HTTPBadRequest(reason=f"the body is not JSON in UTF-8: {error}") from None


def _same(given: object, secret: str) -> bool:
    """Return whether `given` is the secret, in a time that does not depend on where they differ."""
    sent = given.encode("utf-8", "backslashreplace") if isinstance(given, str) else b""
    return hmac.compare_digest(sent, secret.encode())


def _json(value: Any) -> web.Response:
    return web.Response(body=to_json(value), content_type="application/json")


def _error(status: int, message: str) -> web.Response:
    body = to_json({"error": message})
    return web.Response(status=status, body=body, content_type="application/json", headers=HEADERS)
