"""The socket that the API listens on: bound before anything else starts, so that a port in use is noticed first."""

import errno
import socket

from evolverpc_common.network_addresses import url_host
from gepa_service.cli.service_parts import ConfigurationError

BACKLOG = 2048


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket, which child processes inherit. Raises `ConfigurationError`."""
    where = f"cannot listen on {host} port {port}"
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, number)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections inherit it. The server does not set it on a socket that it gets as a descriptor, and the body
            # of each response would then wait 40 ms for the acknowledgement of its head.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.bind(address)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(f"{where}: the port is in use; give another --port (0 for a free one)") from None
        raise ConfigurationError(f"{where}: {error.strerror}") from None
    sock.set_inheritable(True)
    return sock


def url_of(sock: socket.socket) -> str:
    """Return the URL of a listening socket, on this machine if it listens on all addresses."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  compared, not bound
    return f"http://{url_host(host)}:{port}"
