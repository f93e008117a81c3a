"""The clients whose calls are watched: httpx, lm15, aiohttp, urllib3, `http.client`, and sockets that do not connect.

Each function changes one imported module in place, once. Programs behave as before.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator

from .network_calls import INSIDE, OF_THREAD, Call, apart, begin, branched, place, waited

_CALL = "_evolverpc_call"
_ASKED = "_evolverpc_asked"


def watch_httpx(package: Any) -> None:
    """Watch the transports of httpx or httpx2; others, such as those of tests, use no network or another client."""

    class Stream(package.SyncByteStream, package.AsyncByteStream):  # type: ignore[misc]  # known at run time only
        def __init__(self, stream: Any, call: Call) -> None:
            self._stream = stream
            self._call = call

        def __iter__(self) -> Iterator[bytes]:
            return _parts(self._stream, self._call)

        def __aiter__(self) -> Any:
            return _async_parts(self._stream, self._call)

        def close(self) -> None:
            self._stream.close()

        async def aclose(self) -> None:
            await self._stream.aclose()

    def begun(request: Any) -> Call | None:
        return begin(request.method, str(request.url), vars(request).get("_content"))

    def answered(call: Call, response: Any) -> None:
        call.answered(response.status_code, _by_name(response.headers.raw))
        response.stream = Stream(response.stream, call)

    sync, asynchronous = package.HTTPTransport, package.AsyncHTTPTransport
    sync.handle_request = _exchange(sync.handle_request, begun, answered)
    asynchronous.handle_async_request = _async_exchange(asynchronous.handle_async_request, begun, answered)


def watch_lm15(module: Any) -> None:
    """Watch the transports of lm15, by which DSPy calls models."""

    def begun(request: Any) -> Call | None:
        return begin(request.method, request.url, request.body)

    def answered(call: Call, response: Any, parts: Any) -> None:
        call.answered(response.status, {name.lower(): value for name, value in response.headers})
        response._chunks = parts(response._chunks, call)

    sync, asynchronous = module.StdlibTransport, module.StdlibAsyncTransport
    sync.stream = _exchange(sync.stream, begun, functools.partial(answered, parts=_parts))
    read = functools.partial(answered, parts=_async_parts)
    asynchronous._do_stream = _async_exchange(asynchronous._do_stream, begun, read)


def _exchange(send: Any, begun: Callable[[Any], Call | None], answered: Callable[[Call, Any], None]) -> Any:
    """Return a transport's method that sends a request and returns the response, watched."""

    @functools.wraps(send)
    def watched(transport: Any, request: Any) -> Any:
        call = begun(request)
        if call is None:
            return send(transport, request)
        with call:
            response = send(transport, request)
        answered(call, response)
        return response

    return watched


def _async_exchange(send: Any, begun: Callable[[Any], Call | None], answered: Callable[[Call, Any], None]) -> Any:
    """Return the same of an asynchronous transport."""

    @functools.wraps(send)
    async def watched(transport: Any, request: Any) -> Any:
        call = begun(request)
        if call is None:
            return await send(transport, request)
        with call:
            response = await send(transport, request)
        answered(call, response)
        return response

    return watched


def watch_aiohttp(package: Any) -> None:
    """Watch the requests of sessions, and what is read of their responses."""
    reader, bodies = package.StreamReader, _AiohttpBodies()
    session, read, fail = package.ClientSession, reader._read_nowait_chunk, reader.set_exception
    request = session._request

    @functools.wraps(request)
    async def watched(self: Any, method: str, url: Any, **options: Any) -> Any:
        body = options.get("json")
        if body is None:
            body = b"" if options.get("data") is None else options["data"]
            body = body._value if isinstance(body, package.BytesPayload) else body
        call = begin(method.upper(), str(self._build_url(url)), body)
        if call is None:
            return await request(self, method, url, **options)
        try:
            with call:
                response = await request(self, method, url, **options)
        except package.ClientResponseError as problem:  # `raise_for_status` of the session
            call.outcome = None
            call.answered(problem.status, problem.headers or {})
            raise
        decodes = options.get("auto_decompress")
        call.answered(
            response.status, response.headers, is_decoded=self._auto_decompress if decodes is None else decodes
        )
        bodies.add(response.content, call)
        return response

    def read_nowait_chunk(self: Any, n: int) -> Any:
        data = read(self, n)
        if id(self) in bodies.calls:
            bodies.feed(self, data)
        return data

    def set_exception(self: Any, problem: Any, *more: Any) -> None:
        fail(self, problem, *more)
        call = bodies.calls.pop(id(self), None)
        if call is not None:
            call.raised(self.exception() or problem)

    session._request = watched
    reader._read_nowait_chunk = read_nowait_chunk
    reader.set_exception = set_exception


class _AiohttpBodies:
    """The calls of the bodies that are being read, by the id of their readers, which take no attributes."""

    def __init__(self) -> None:
        self.calls: dict[int, Call] = {}

    def add(self, content: Any, call: Call) -> None:
        if content.exception() is not None:
            call.raised(content.exception())
            return
        self.calls[id(content)] = call
        call.when_closed(functools.partial(self.calls.pop, id(content), None))
        content.on_eof(functools.partial(self._end, content))

    def feed(self, content: Any, data: bytes) -> None:
        self.calls[id(content)].feed(data)
        self._end(content)

    def _end(self, content: Any) -> None:
        if content.at_eof():
            call = self.calls.pop(id(content), None)
            if call is not None:
                call.finished()


def watch_urllib3_pool(module: Any) -> None:
    """Watch each attempt of a pool, from the connection on."""
    pool = module.HTTPConnectionPool
    make_request = pool._make_request

    @functools.wraps(make_request)
    def watched(self: Any, conn: Any, method: str, url: str, *more: Any, **options: Any) -> Any:
        body = options.get("body", more[0] if more else b"")
        call = begin(method, _url_of(conn, url, self.scheme), b"" if body is None else body)
        if call is None:
            return make_request(self, conn, method, url, *more, **options)
        with call:
            response = make_request(self, conn, method, url, *more, **options)
        whole = getattr(response, "_body", None)
        call.answered(response.status, response.headers, is_decoded=isinstance(whole, bytes))
        if isinstance(whole, bytes):  # it was read, and decoded, at once
            call.feed(whole)
            call.finished()
        else:
            vars(getattr(response, "_fp", response))[_CALL] = call
        return response

    pool._make_request = watched


def watch_urllib3_response(module: Any) -> None:
    """Watch what is read of chunked responses, which does not pass through `http.client`."""
    response = module.HTTPResponse
    read_chunked, handle_chunk = response.read_chunked, response._handle_chunk

    @functools.wraps(read_chunked)
    def watched(self: Any, *given: Any, **options: Any) -> Any:
        call = getattr(self._fp, _CALL, None)
        if call is None:
            yield from read_chunked(self, *given, **options)
            return
        try:
            yield from read_chunked(self, *given, **options)
        except GeneratorExit:  # the program stops reading
            raise
        except BaseException as problem:
            call.raised(problem)
            raise
        call.finished()

    def watched_chunk(self: Any, *given: Any) -> Any:
        data = handle_chunk(self, *given)
        call = getattr(self._fp, _CALL, None)
        if call is not None:
            call.feed(data)
        return data

    response.read_chunked = watched
    response._handle_chunk = watched_chunk


def watch_http_client(module: Any) -> None:
    """Watch connections of the standard library, also below `urllib.request`, and all that is read of responses."""
    connection, response = module.HTTPConnection, module.HTTPResponse
    putrequest, endheaders, getresponse = connection.putrequest, connection.endheaders, connection.getresponse

    @functools.wraps(putrequest)
    def watched_putrequest(self: Any, method: str, url: str, *more: Any, **options: Any) -> Any:
        setattr(self, _ASKED, (method, _url_of(self, url)))
        return putrequest(self, method, url, *more, **options)

    @functools.wraps(endheaders)
    def watched_endheaders(self: Any, *given: Any, **options: Any) -> Any:
        body = (given[0] or b"") if given else None  # `request` gives it here, another caller sends it afterwards
        asked = self.__dict__.pop(_ASKED, None)
        call = None if asked is None else begin(asked[0], asked[1], body)
        if call is None:
            return endheaders(self, *given, **options)
        setattr(self, _CALL, call)
        with call:
            return endheaders(self, *given, **options)

    @functools.wraps(getresponse)
    def watched_getresponse(self: Any, *given: Any, **options: Any) -> Any:
        call = self.__dict__.pop(_CALL, None)
        if call is None:
            return getresponse(self, *given, **options)
        with call:
            found = getresponse(self, *given, **options)
        call.answered(found.status, found.headers)
        setattr(found, _CALL, call)
        return found

    connection.putrequest, connection.endheaders = watched_putrequest, watched_endheaders
    connection.getresponse = watched_getresponse
    for name in ("read", "read1", "readline"):
        setattr(response, name, _watched_read(getattr(response, name), lambda data, _: data))
    response.readinto = _watched_read(response.readinto, lambda count, into: bytes(memoryview(into)[:count]))


def _watched_read(read: Callable[..., Any], data_of: Callable[[Any, Any], bytes]) -> Callable[..., Any]:
    @functools.wraps(read)
    def watched(self: Any, *given: Any, **options: Any) -> Any:
        call = self.__dict__.pop(_CALL, None)  # what reads within it is a part of it
        if call is None:
            return read(self, *given, **options)
        try:
            result = read(self, *given, **options)
        except BaseException as problem:
            call.raised(problem)
            raise
        call.feed(data_of(result, given[0] if given else None))
        if not self.isclosed():
            setattr(self, _CALL, call)
        elif self.length:  # bytes that it announced, and did not send
            call.raised(ConnectionResetError("%s more bytes were announced" % self.length))
        else:
            call.finished()
        return result

    return watched


def watch_sockets(module: Any) -> None:
    """Watch connections that fail, also of clients that speak other protocols, and names that are not found."""
    connect, getaddrinfo = module.socket.connect, module.getaddrinfo

    @functools.wraps(connect)
    def watched_connect(self: Any, address: Any) -> Any:
        try:
            return connect(self, address)
        except BlockingIOError:
            raise
        except OSError as problem:
            if isinstance(address, tuple):  # one of an address family with hosts
                _not_connected(address[0], address[1], problem)
            raise

    @functools.wraps(getaddrinfo)
    def watched_getaddrinfo(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        try:
            return getaddrinfo(host, port, *more, **options)
        except OSError as problem:
            if isinstance(host, str):
                _not_connected(host, port, problem)
            raise

    module.socket.connect = watched_connect
    module.getaddrinfo = watched_getaddrinfo


def watch_loops(module: Any) -> None:
    """Watch connections of event loops that fail, and their tasks."""
    loop = module.BaseEventLoop
    create_connection = loop.create_connection

    @functools.wraps(create_connection)
    async def watched(self: Any, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        try:
            return await create_connection(self, protocol_factory, host, port, **options)
        except OSError as problem:
            if host is not None:
                _not_connected(host, port, problem)
            raise

    loop.create_connection = watched
    _watch_tasks(loop)


def watch_uvloop(package: Any) -> None:
    """Watch the tasks of uvloop's loops."""
    _watch_tasks(package.Loop)


def _watch_tasks(loop: Any) -> None:
    """Have each task be a branch of the example that creates it."""
    create_task = loop.create_task

    @functools.wraps(create_task)
    def watched_task(self: Any, coro: Any, **options: Any) -> Any:
        branch = branched()
        if branch is None or branch is INSIDE:
            return create_task(self, coro, **options)
        token = place.set(branch)  # the task copies it
        try:
            return create_task(self, coro, **options)
        finally:
            place.reset(token)

    loop.create_task = watched_task


def _not_connected(host: Any, port: Any, problem: OSError) -> None:
    call = begin("CONNECT", "tcp://%s" % host if port is None else "tcp://%s:%s" % (host, port))
    if call is not None:
        call.raised(problem)


def watch_futures(module: Any) -> None:
    """Note when a thread has waited for what it gave to a pool."""
    future = module.Future

    def each(function: Any) -> Any:
        @functools.wraps(function)
        def watched(*given: Any, **options: Any) -> Any:
            for found in function(*given, **options):
                waited()
                yield found

        return watched

    future.result, future.exception = _waiting(future.result), _waiting(future.exception)
    wait, as_completed = _waiting(module.wait), each(module.as_completed)
    holders: tuple[Any, ...] = (module, sys.modules.get("concurrent.futures"))
    for holder in holders:
        if hasattr(holder, "wait"):  # the package, once it has imported them
            holder.wait, holder.as_completed = wait, as_completed


def watch_pools(module: Any) -> None:
    """Have what is submitted to a pool of threads belong to the example that submits it."""
    module.ThreadPoolExecutor.submit = _giving(module.ThreadPoolExecutor.submit)


def watch_thread_pools(module: Any) -> None:
    """Have what is given to a pool of threads of `multiprocessing` belong to the example that gives it."""
    pool, result, iterator = module.ThreadPool, module.ApplyResult, module.IMapIterator
    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):
        setattr(pool, name, _giving(getattr(pool, name)))
    result.wait, iterator.next = _waiting(result.wait), _waiting(iterator.next)
    iterator.__next__ = iterator.next


def _giving(give: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(give)
    def watched(self: Any, *given: Any, **options: Any) -> Any:
        if given:
            given = (apart(given[0]), *given[1:])
        elif "func" in options:
            options["func"] = apart(options["func"])
        return give(self, *given, **options)

    return watched


def _waiting(wait: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(wait)
    def watched(*given: Any, **options: Any) -> Any:
        try:
            return wait(*given, **options)
        finally:
            waited()

    return watched


def watch_threads(module: Any) -> None:
    """Have threads belong to the example that starts them."""
    start = module.Thread.start

    @functools.wraps(start)
    def watched(self: Any) -> None:
        setattr(self, OF_THREAD, branched())
        start(self)

    module.Thread.start = watched


def _parts(parts: Iterable[bytes], call: Call) -> Iterator[bytes]:
    try:
        for part in parts:
            call.feed(part)
            yield part
    except GeneratorExit:  # the program stops reading
        raise
    except BaseException as problem:
        call.raised(problem)
        raise
    call.finished()


async def _async_parts(parts: AsyncIterable[bytes], call: Call) -> AsyncIterator[bytes]:
    try:
        async for part in parts:
            call.feed(part)
            yield part
    except GeneratorExit:  # as above
        raise
    except BaseException as problem:
        call.raised(problem)
        raise
    call.finished()


def _by_name(headers: Any) -> dict[str, str]:
    return {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in headers}


def _url_of(connection: Any, target: str, scheme: str = "") -> str:
    if "://" in target:  # by a proxy
        return target
    host = getattr(connection, "_tunnel_host", None) or connection.host
    port = getattr(connection, "_tunnel_port", None) or connection.port
    scheme = scheme or ("https" if connection.default_port == 443 else "http")
    return "%s://%s%s%s" % (scheme, "[%s]" % host if ":" in host else host, ":%s" % port if port else "", target)
