"""Other processes, other sandboxes."""

import contextlib
import ctypes
import glob
import json
import os
import socket
from pathlib import Path

from registry import attempt


def others():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


@attempt
def read_environments(example):
    for pid in [*others(), os.getpid()]:
        with contextlib.suppress(OSError):
            text = Path("/proc/%d/environ" % pid).read_bytes()
            for secret in (example["canary"], example["key"]):
                if secret.encode() in text:
                    return "%d: %s" % (pid, secret)
            if b"GEPA_TOKEN" in text:
                return "%d: the server's token" % pid
    return None


@attempt
def read_own_environment(example):
    text = json.dumps(dict(os.environ))
    return next((secret for secret in (example["canary"], example["key"], "GEPA_TOKEN") if secret in text), None)


@attempt
def host_abstract_socket(example):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + example["abstract"])
        return sock.recv(64)


@attempt
def shared_memory(example):
    return [path for path in glob.glob("/dev/shm/*") if example["canary_name"] in path] or None


@attempt
def shared_keyring(example):
    """Keys that any descendant of the same process would find."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = libc.syscall(248, b"user", b"mine", b"hidden", 6, -3)
    return "key %d" % key if key > 0 else None


@attempt
def sockets_by_io_uring(example):
    """A ring makes sockets of any kind, beside what looks at system calls."""
    ring = ctypes.CDLL(None, use_errno=True).syscall(425, 4, ctypes.create_string_buffer(120))
    return "ring %d" % ring if ring >= 0 else None
