"""The listening socket of the API."""

import socket

from gepa_service.cli.listening import bound_socket


def test_connections_send_the_body_of_a_response_without_waiting_for_the_acknowledgement_of_its_head() -> None:
    with (
        bound_socket("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname(), timeout=10),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
