"""Answers in another's name."""

import contextlib
import ctypes
import fcntl
import glob
import json
import os
import socket
import stat
import threading

from network import connect
from processes import is_mine, others
from registry import attempt, files
from writing import can_write


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
def forge_on_descriptors_of_others(example):
    for pid in others():
        for path in glob.glob("/proc/%d/fd/*" % pid):
            with contextlib.suppress(OSError):
                if not is_mine(pid) and stat.S_ISFIFO(os.stat(path).st_mode):
                    with open(path, "wb", buffering=0):
                        return path
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
def change_other_commits(example):
    mine = os.getcwd()
    for path in files("program.py"):
        if not path.startswith(mine) and can_write([path]):
            return path
    return None


@attempt
def trace_a_thread(example):
    """A thread of this process is no way to another one's memory."""
    threading.Thread(target=lambda: None).start()
    libc = ctypes.CDLL(None, use_errno=True)
    source, target = ctypes.create_string_buffer(8), (ctypes.c_void_p * 2)(0x400000, 8)
    here = (ctypes.c_void_p * 2)(ctypes.addressof(source), 8)
    for pid in others():
        if not is_mine(pid) and libc.process_vm_readv(pid, here, 1, target, 1, 0) > 0:
            return pid
    return None


@attempt
def lock_what_the_server_needs(example):
    for path in files(".lock"):
        with contextlib.suppress(OSError), open(path, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return path
    return None
