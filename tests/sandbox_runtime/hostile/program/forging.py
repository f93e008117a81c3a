"""Answers in another's name."""

import contextlib
import fcntl
import json
import os
import socket

from network import connect
from registry import attempt, files


@attempt
def forge_on_stdout(example):
    for number in range(1, 2000):
        answer = {
            "jsonrpc": "2.0",
            "id": number,
            "result": {"results": [{"status": "ok", "score": 1, "output": "forged", "seconds": 0}]},
        }
        with contextlib.suppress(OSError):
            os.write(1, (json.dumps(answer) + "\n").encode())
    return None


@attempt
def forge_by_calling_the_server(example):
    for path in [*files(".sock"), *files("/server")]:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            return path
    for port in range(1024, 65536, 977):
        with contextlib.suppress(OSError):
            connect("127.0.0.1", port)
            return port
    return None


@attempt
def lock_what_the_server_needs(example):
    for path in files(".lock"):
        with contextlib.suppress(OSError), open(path, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return path
    return None
