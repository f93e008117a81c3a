"""Programs that return although a model failed, and whose examples are no results for that reason."""

import asyncio
import contextlib
import json
import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from clients import ASKED, deltas

seed_candidate = {"prompt": "Hi"}
HOST = os.environ["HOST"]


def ask(way, text="Hi", path="/chat/completions"):
    """Ask a model by the standard library; return its status, also that of a failure."""
    body = json.dumps({**ASKED, "messages": [{"role": "user", "content": text}]}).encode()
    try:
        with urlopen(Request("%s/%s%s" % (HOST, way, path), body)) as answer:
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
    return ask("ok"), ask("429")


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


WAYS = (
    *(swallowed, swallowed_last, in_a_pool, in_a_branch, in_an_own_thread, imported_meanwhile, empty_stream),
    *(until_the_limit, returned_what_is_no_result, judged_by_a_model_that_fails, raised_for_another_reason),
)


def run(example, candidate):
    if example.get("path"):
        return ask("503", path=example["path"])
    result = globals()[example["way"]]()
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def score(example, output):
    ask("503" if output == "judge" else "ok", "is it right?")
    return 1.0


class Adapter:
    """A GEPAAdapter that scores what fails with 0."""

    def evaluate(self, batch, candidate, capture_traces=False):
        from gepa.core.adapter import EvaluationBatch

        statuses = [ask(row["way"], row["text"]) for row in batch]
        return EvaluationBatch(outputs=statuses, scores=[float(status == 200) for status in statuses])

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):
        return {}
