"""The socket that the API listens on: bound before anything else starts, so that a port in use is noticed first."""

import socket

from evolverpc_common.network_addresses import CannotListen, bound_socket, url_host
from gepa_service.cli.service_parts import ConfigurationError

BACKLOG = 2048


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `ConfigurationError`."""
    try:
        sock = bound_socket(host, port, backlog=BACKLOG, in_use=": end the program that uses it")
    except CannotListen as error:
        raise ConfigurationError(str(error)) from None
    # Connections inherit it. The server does not set it on a socket that it gets, and the body of each response
    # would then wait 40 ms for the acknowledgement of its head.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def url_of(sock: socket.socket) -> str:
    """Return the URL of a listening socket, on this machine if it listens on all addresses."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  compared, not bound
    return f"http://{url_host(host)}:{port}"
