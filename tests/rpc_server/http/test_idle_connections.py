"""Idle connections do not keep a server with few descriptors from answering."""

import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from sandbox_runtime import running_server
from tests.rpc_server.server_process import asked

LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))
os.execv(sys.argv[1], sys.argv[1:])
"""


async def test_idle_connections_do_not_starve_a_server_with_few_descriptors() -> None:
    server = str(Path(sys.executable).with_name("gepa-server"))
    command = [sys.executable, "-c", LIMITED, server, "--conformance", "--workers", "1"]
    with running_server(command) as endpoint, ExitStack() as stack:
        where = urlsplit(endpoint.url)
        kept = stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=10))
        for number in range(400):
            stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=10))
            if number % 20 == 0:
                kept.sendall(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert kept.recv(4096).startswith(b"HTTP/1.1 200 "), "it is used again and again"
        _, answer = await asked(endpoint.url, "discover", {}, Authorization=f"Bearer {endpoint.token}")
        assert "result" in answer
