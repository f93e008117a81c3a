"""Runs inside one sandbox of the loopback Modal, alone with the standard library: starts commands, makes sockets.

Orders and answers are JSON messages over the socket whose descriptor is the only argument; descriptors go with them.

    {"id", "do": "exec", "argv", "env", "cwd"} + stdin, stdout, stderr  ->  {"id", "pid"} or {"id", "error"}
                                                       later, unasked:  {"ended": pid, "status": as `Popen.returncode`}
    {"id", "do": "kill", "pid"}                        ->  {"id"}, the command's whole session killed
    {"id", "do": "socket"}                             ->  {"id"} + a TCP socket of this network, not connected
    {"id", "do": "listen", "host", "port"}             ->  {"id"} + one that listens here
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from typing import Any

MESSAGE_BYTES = 1 << 20

Order = dict[str, Any]
Answer = tuple[dict[str, Any], list[int]]
Commands = dict[int, "subprocess.Popen[bytes]"]


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    orders.set_inheritable(False)
    running: Commands = {}
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([orders.fileno(), woken], [], [])
        if orders.fileno() in ready:
            data, descriptors, _, _ = socket.recv_fds(orders, MESSAGE_BYTES, 3)
            if not data:
                return  # the controlling process is gone, and the sandbox with it
            answer, sent = obey(json.loads(data), descriptors, running)
            socket.send_fds(orders, [json.dumps(answer).encode()], sent)
            for descriptor in (*descriptors, *sent):
                os.close(descriptor)
        if woken in ready:
            os.read(woken, 4096)
        for pid, process in list(running.items()):
            status = process.poll()
            if status is not None:
                del running[pid]
                orders.send(json.dumps({"ended": pid, "status": status}).encode())


def obey(order: Order, descriptors: list[int], running: Commands) -> Answer:
    try:
        answer, sent = DO[order["do"]](order, descriptors, running)
    except OSError as error:
        answer, sent = {"error": str(error)}, []
    return {"id": order["id"], **answer}, sent


def execute(order: Order, descriptors: list[int], running: Commands) -> Answer:
    stdin, stdout, stderr = descriptors
    process = subprocess.Popen(
        order["argv"],
        env=order["env"],
        cwd=order["cwd"],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    running[process.pid] = process
    return {"pid": process.pid}, []


def kill(order: Order, descriptors: list[int], running: Commands) -> Answer:
    if order["pid"] in running:
        os.killpg(order["pid"], signal.SIGKILL)
    return {}, []


def unconnected(order: Order, descriptors: list[int], running: Commands) -> Answer:
    return {}, [socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach()]


def listening(order: Order, descriptors: list[int], running: Commands) -> Answer:
    return {}, [socket.create_server((order["host"], order["port"])).detach()]


DO = {"exec": execute, "kill": kill, "socket": unconnected, "listen": listening}

if __name__ == "__main__":
    main()
