"""Other processes, other sandboxes."""

import contextlib
import ctypes
import glob
import json
import os
import signal
import socket
import stat
from pathlib import Path

from registry import attempt


def others():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


@attempt
def find_other_programs(example):
    """List other processes that are visible: the server, another sandbox, the optimizer."""
    found = []
    for pid in others():
        with contextlib.suppress(OSError):
            line = Path("/proc/%d/cmdline" % pid).read_bytes()
            if (b"gepa" in line.lower() or b"rpc_server" in line or b"pytest" in line) and not is_mine(pid):
                found.append((pid, line))
    return found or None


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
def read_server_memory(example):
    for pid in others():
        with contextlib.suppress(OSError), open("/proc/%d/mem" % pid, "rb"):
            if not is_mine(pid):
                return pid
    return None


def is_mine(pid):
    """Whether it is the warm parent of this process, a descendant of that parent, the jail around it, or has ended."""
    while pid > 0:
        try:
            line = Path("/proc/%d/cmdline" % pid).read_bytes()
            if b"/worker/" in line or (pid == 1 and b"--disable-userns" in line):
                return True
            pid = int(Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[1])
        except OSError:
            return True
    return False


@attempt
def attach_to_others(example):
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in [1, *others()]:
        if not is_mine(pid) and libc.ptrace(16, pid, 0, 0) == 0:
            libc.ptrace(17, pid, 0, 0)
            return pid
    return None


@attempt
def signal_the_server(example):
    hit = []
    for pid in range(2, 400):
        if pid != os.getpid() and not is_mine(pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                hit.append(pid)
    return hit or None


@attempt
def steal_descriptors(example):
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in others():
        if is_mine(pid):
            continue
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            for number in range(3, 12):
                if libc.syscall(438, pidfd, number, 0) >= 0:
                    return "descriptor %d of %d" % (number, pid)
    return None


@attempt
def listening_descriptors(example):
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                found = socket.socket(fileno=os.dup(number))
                if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    return number
    return None


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
