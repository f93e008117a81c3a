"""Forward requests to a server; on request, close the connection after one was executed and before its response."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CuttingProxy:
    """`cut(word)`: the next request with that word in it is done by the server, and its answer is lost."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._word: bytes | None = None
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, word: bytes) -> None:
        with self._lock:
            self._word = word

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._behind)) as server:
            while (request := _message(client)) is not None:
                server.sendall(request)
                answer = _message(server)
                if answer is None or self._meant(request):
                    return
                client.sendall(answer)

    def _meant(self, request: bytes) -> bool:
        with self._lock:
            if self._word is None or self._word not in request:
                return False
            self._word = None
            self.cuts += 1
            return True


def _message(stream: socket.socket) -> bytes | None:
    """One message of MongoDB's wire: its length, in four bytes, counts them too."""
    head = _exactly(stream, 4)
    rest = None if head is None else _exactly(stream, int.from_bytes(head, "little") - 4)
    return None if head is None or rest is None else head + rest


def _exactly(stream: socket.socket, count: int) -> bytes | None:
    got = b""
    while len(got) < count:
        more = stream.recv(count - len(got))
        if not more:
            return None
        got += more
    return got


@contextmanager
def cutting(port: int) -> Iterator[CuttingProxy]:
    """A proxy in front of a port of this machine, while the block lasts."""
    proxy = CuttingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
