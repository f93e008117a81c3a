"""The real key."""

import contextlib
import http.client
import json
import os
import socket
import time
import urllib.parse

from registry import LIMIT_S, attempt


def ask(method, path, headers=None, body=b""):
    base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
    connection = http.client.HTTPConnection(base.hostname, base.port, timeout=LIMIT_S)
    own = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    connection.request(method, path, body, {**own, **(headers or {})})
    answer = connection.getresponse()
    return "%s %s %s" % (answer.status, answer.getheaders(), answer.read(1 << 20).decode("utf-8", "replace"))


def chat(headers=None, **fields):
    base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"]).path
    body = {"model": "stub", "messages": [{"role": "user", "content": "hello"}], **fields}
    return ask("POST", base + "/chat/completions", headers, json.dumps(body).encode())


def seen(example, text):
    return text if example["key"] in text else None


@attempt
def key_in_an_answer(example):
    return seen(example, chat())


@attempt
def key_echoed_by_the_provider(example):
    return seen(example, chat(echo=True)) or seen(example, chat(echo=True, stream=True))


@attempt
def key_in_an_error(example):
    return seen(example, chat(fail=True)) or seen(example, chat(model="no-such-model"))


@attempt
def key_by_other_methods(example):
    base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"]).path
    text = ""
    for method in ("TRACE", "OPTIONS", "PUT", "DELETE", "HEAD", "GET"):
        with contextlib.suppress(OSError, http.client.HTTPException):
            text += ask(method, base + "/chat/completions")
    return seen(example, text)


@attempt
def key_by_other_paths(example):
    text = ""
    for path in (
        "/",
        "/openai/",
        "/openai/v1/../../debug",
        "/openai//debug",
        "/openai/%2e%2e/debug",
        "/debug",
        "http://127.0.0.1:%d/" % example["port"],
    ):
        with contextlib.suppress(OSError, http.client.HTTPException):
            text += ask("GET", path)
    return seen(example, text) or (text if example["canary"] in text else None)


@attempt
def key_by_headers(example):
    sent = {"X-Forwarded-Host": "127.0.0.1:%d" % example["port"], "Host": "127.0.0.1:%d" % example["port"]}
    return seen(example, chat(sent)) or seen(example, chat({"Authorization": "Bearer x"}))


@attempt
def key_by_smuggling(example):
    base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
    with socket.create_connection((base.hostname, base.port), timeout=LIMIT_S) as sock:
        sock.settimeout(LIMIT_S)
        head = "POST %s/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
        head %= (base.path, os.environ["OPENAI_API_KEY"])
        smuggled = "GET /debug HTTP/1.1\r\nHost: x\r\n\r\n"
        sock.sendall((head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled).encode())
        text = b""
        with contextlib.suppress(OSError):
            while part := sock.recv(65536):
                text += part
    return seen(example, text.decode("latin-1"))


@attempt
def timing_of_refusals(example):
    """Whether a wrong token that begins as the right one is refused later than one that does not."""
    right = os.environ["OPENAI_API_KEY"]

    def seconds(token):
        base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"]).path
        began = time.perf_counter()
        ask("GET", base + "/models", {"Authorization": "Bearer " + token})
        return time.perf_counter() - began

    near, far = (sorted(seconds(token) for _ in range(15))[7] for token in (right[:-1] + "~", "~" * len(right)))
    return (near, far) if near > 5 * far and near - far > 0.01 else None
