"""Kept-alive HTTP connections to one service, for several threads: a post is repeated until it is answered in time.

`http.client` rather than aiohttp: stores are synchronous and are called from several threads, and the optimizer's
process has no other event loop that could serve them while its main thread computes. It needs no package, and reaches a
socket of the file system as well, which is all that an isolated optimizer has.
"""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from gepa_client.errors import StoreUnavailable
from gepa_client.transport.address import socket_of

PATIENCE_S = 30.0
"""Seconds for which a request is repeated while the service is away; longer than a restart of it takes."""

ANSWER_S = 60.0
"""Seconds without a byte of a response after which a connection counts as lost."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
TRY_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses of a service that is starting, overloaded or away behind a proxy."""

KEPT = 8
"""Idle connections that are kept."""

Headers = Callable[[], dict[str, str]]


class ConnectionPool:
    """Connections to the origin of `url`, plain or TLS, or to the socket of an `http+unix` URL.

    `headers`: called before each request. `patience_s`: as `PATIENCE_S`.
    """

    def __init__(self, url: str, headers: Headers, patience_s: float = PATIENCE_S) -> None:
        parts = urlsplit(url)
        self._socket = socket_of(url)
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "localhost", parts.port
        self._path = parts.path.rstrip("/")
        self._headers = headers
        self._patience_s = patience_s
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._closed = False

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a body to a path below the URL; return the status and the whole response.

        It is sent again after a lost connection or a status of `TRY_AGAIN`, so it must be safe to repeat.

        Raises:
            StoreUnavailable: no response in time. The last status of `TRY_AGAIN` is returned instead, if there is one.
        """
        until, pause = time.monotonic() + self._patience_s, FIRST_PAUSE_S
        while True:
            answered: tuple[int, bytes] | None = None
            trouble = ""
            try:
                answered = self._once(path, body)
            except (OSError, http.client.HTTPException) as error:
                trouble = str(error) or type(error).__name__
            if answered is not None and answered[0] not in TRY_AGAIN:
                return answered
            if time.monotonic() + pause > until:
                if answered is not None:
                    return answered
                raise StoreUnavailable(f"the service does not answer: {trouble}")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def close(self) -> None:
        """Close idle connections, and others when their request ends; safe to call twice."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def _once(self, path: str, body: bytes) -> tuple[int, bytes]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._connection()
        try:
            connection.request("POST", self._path + path, body, {"Content-Type": "application/json", **self._headers()})
            response = connection.getresponse()
            answered = response.status, response.read()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            keep = not self._closed and len(self._idle) < KEPT and not response.will_close
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
        return answered

    def _connection(self) -> http.client.HTTPConnection:
        if self._socket is not None:
            return _SocketConnection(self._socket)
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=ANSWER_S, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_S)


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise
