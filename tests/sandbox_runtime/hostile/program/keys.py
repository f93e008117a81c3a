"""The real key."""

import contextlib
import http.client
import json
import os
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
