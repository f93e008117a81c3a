"""Programs that return although a model failed, and whose examples are no results for that reason."""

import asyncio
import contextlib
import contextvars
import http.client
import io
import json
import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from clients import ASKED, deltas

seed_candidate = {"prompt": "Hi"}
HOST = os.environ["HOST"]


def ask(way, text="Hi", after_s=0.0, path="/chat/completions", host=HOST):
    """Ask a model by the standard library; return its status, also that of a failure."""
    body = json.dumps({**ASKED, "messages": [{"role": "user", "content": text}]}).encode()
    time.sleep(after_s)
    try:
        with urlopen(Request("%s/%s%s" % (host, way, path), body)) as answer:
            answer.read()
            return answer.status
    except HTTPError as failed:
        return failed.code


waiting, done = queue.Queue(), queue.Queue()


def work():
    while True:
        done.put(ask(waiting.get()))


def swallowed():
    return ask("503")


def swallowed_last():
    return ask("ok"), ask("ok", host=HOST.replace("127.0.0.1", "localhost")), ask("429")


def in_a_pool():
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, "500", "one")
        while not first.done():  # before the second is given
            time.sleep(0.01)
        return [given.result() for given in (first, pool.submit(ask, "ok", "two"))]


async def in_a_branch():
    return await asyncio.gather(asyncio.to_thread(ask, "500", "one"), asyncio.to_thread(ask, "ok", "two"))


def in_an_own_thread():
    threading.Thread(target=work, daemon=True).start()
    waiting.put("503")
    return done.get()


def imported_meanwhile():
    import requests

    return requests.post(HOST + "/503/chat/completions", json=ASKED).status_code


def empty_stream():
    import requests

    with requests.post(HOST + "/event/chat/completions", json={**ASKED, "stream": True}, stream=True) as answer:
        with contextlib.suppress(KeyError):
            return deltas(answer.iter_lines())
    return ""


def until_the_limit():
    while True:
        ask("503")
        time.sleep(0.05)


def returned_what_is_no_result():
    ask("503")
    return object()


def judged_by_a_model_that_fails():
    return "judge"


def raised_for_another_reason():
    ask("503")
    raise KeyError("label")


def in_copied_contexts():
    with ThreadPoolExecutor(2) as pool:
        given = [
            pool.submit(contextvars.copy_context().run, ask, *each) for each in (("500", "one"), ("ok", "two", 0.3))
        ]
        return [each.result() for each in given]


def in_a_pool_of_multiprocessing():
    with ThreadPool(1) as pool:
        return pool.starmap(ask, [("500", "one"), ("ok", "two")], chunksize=1)


async def in_tasks_without_a_loop():
    ended = threading.Event()

    def first():
        ask("500", "one")
        ended.set()

    async def hold():
        ended.wait(10)  # so the last task takes its first step when the first call has ended

    tasks = [asyncio.Task(each) for each in (asyncio.to_thread(first), hold(), asyncio.to_thread(ask, "ok", "two"))]
    return [await each for each in tasks]


def sent_from_a_file():
    import requests

    return requests.post(HOST + "/503/chat/completions", data=io.BytesIO(json.dumps(ASKED).encode())).status_code


def sent_in_parts():
    import httpx

    return httpx.post(HOST + "/503/chat/completions", content=iter([b"{", b"}"])).status_code


def sent_by_the_methods_of_a_connection():
    connection = http.client.HTTPConnection(HOST.removeprefix("http://"))
    connection.putrequest("POST", "/503/chat/completions")
    connection.putheader("content-length", "15")
    connection.endheaders(b'{"messages":[]}')
    return connection.getresponse().status


def asked_for_an_image():
    import requests

    return requests.post(HOST + "/503/images/edits", files={"image": b"x"}, data={"model": "m"}).status_code


async def packed_stream():
    import aiohttp

    asked = {**ASKED, "kind": EVENTS, "answer": "data: %s\n\n" % ERROR, "is_packed": True}
    async with aiohttp.ClientSession() as session, session.post(HOST + "/echo/chat/completions", json=asked) as answer:
        return await answer.text()


def echoed(kind, text):
    body = json.dumps({**ASKED, "kind": kind, "answer": text}).encode()
    with urlopen(Request(HOST + "/echo/chat/completions", body)) as answer:
        return answer.read().decode()


EVENTS, LINES, JSON = "text/event-stream", "application/x-ndjson", "application/json"
ERROR = '{"error": {"code": 503}}'
CHUNK = '{"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}'
BODIES = {
    "an error in several lines": (EVENTS, 'data: {"error":\ndata: {"code": 503}}\n\n'),
    "an error between carriage returns": (EVENTS, "data: %s\r\revent: error\rdata: %s\r\r" % (CHUNK, ERROR)),
    "an error of a choice": (JSON, '{"model": "m", "choices": [{"error": {"code": 502}, "finish_reason": "error"}]}'),
    "an error that is a sentence": (JSON, '{"error": {"message": "The engine is overloaded, try again later"}}'),
    "an error of a context that is no prompt's": (LINES, '{"error": "upstream: context canceled"}\n'),
    "a failed response in a text": ("text/plain", '{"type": "response.failed", "response": %s}' % ERROR),
    "a stream of no event": (EVENTS, ": keepalive\n\n"),
    "a stream of OpenAI's that is cut": (EVENTS, "data: %s\n\n" % CHUNK),
    "a stream of responses that is cut": (EVENTS, 'data: {"type": "response.created"}\n\n'),
    "a stream of Anthropic's that is cut": (EVENTS, 'data: {"type": "message_start", "message": {}}\n\n'),
    "a stream of Gemini's that is cut": (EVENTS, 'data: {"candidates": [{"content": {}}]}\r\n\r\n'),
    "a stream of Ollama's that is cut": (LINES, '{"model": "m", "created_at": "now", "done": false}\n'),
}


def run(example, candidate):
    if example.get("way", "") is None:
        return list(BODIES)
    if example.get("path"):
        return ask("503", path=example["path"])
    result = echoed(*BODIES[example["way"]]) if example["way"] in BODIES else globals()[example["way"]]()
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def score(example, output):
    ask("503" if output == "judge" else "ok", "is it right?")
    return 1.0


class Adapter:
    """A GEPAAdapter that scores what fails with 0."""

    def evaluate(self, batch, candidate, capture_traces=False):
        from gepa.core.adapter import EvaluationBatch

        given = [ask(row["way"], row["text"]) for row in batch]
        return EvaluationBatch(outputs=given[: batch[0].get("outputs")], scores=[float(one == 200) for one in given])

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):
        return {}
