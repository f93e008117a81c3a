"""Reaching what is not on the list."""

import base64
import contextlib
import os
import socket
import urllib.parse

from registry import LIMIT_S, Kept, attempt


def connect(host, port):
    with socket.create_connection((host, port), timeout=LIMIT_S) as sock:
        sock.settimeout(LIMIT_S)
        with contextlib.suppress(OSError):
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return sock.recv(200)
        return b"connected"


@attempt
def host_loopback(example):
    return connect("127.0.0.1", example["port"])


@attempt
def public_network(example):
    return connect("1.1.1.1", 443)


@attempt
def dns(example):
    with contextlib.suppress(OSError):
        return socket.getaddrinfo("example.com", 80)
    question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.sendto(question, ("8.8.8.8", 53))
        return sock.recv(512)


@attempt
def raw_socket(example):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
        return str(sock)


def tunnel(target, port):
    """Through the gateway's proxy."""
    proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
    secret = base64.b64encode(("%s:%s" % (proxy.username or "", proxy.password or "")).encode()).decode()
    with socket.create_connection((proxy.hostname, proxy.port), timeout=LIMIT_S) as sock:
        sock.settimeout(LIMIT_S)
        asked = "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\nProxy-Authorization: Basic %s\r\n\r\n"
        sock.sendall((asked % (target, port, target, port, secret)).encode())
        answer = sock.recv(4096)
    if b" 200" in answer.split(b"\r\n")[0]:
        return answer
    raise Kept(answer.split(b"\r\n")[0].decode())


@attempt
def tunnel_to_metadata(example):
    for name in ("169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "metadata.google.internal"):
        with contextlib.suppress(Kept, OSError):
            return name, tunnel(name, 80)
    return None


@attempt
def tunnel_by_a_name_of_the_allowed(example):
    """A name that is allowed, and that was made to point at the host's loopback."""
    return tunnel(example["rebound"], example["port"])


@attempt
def the_machine_around_a_virtual_machine(example):
    """AF_VSOCK knows no network namespace."""
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as sock:
        sock.bind((socket.VMADDR_CID_ANY, 45556))
        return str(sock)
