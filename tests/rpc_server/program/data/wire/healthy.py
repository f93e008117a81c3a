"""Programs that are right although some of their calls fail: retries that succeed, failures that they handle."""

import asyncio
import concurrent.futures
import enum
import json
import subprocess
import sys
import urllib.error
import urllib.request

import aiohttp
import httpx
import openai
import requests
from clients import ASKED, MESSAGES, deltas

seed_candidate = {"prompt": "Hi"}


def sdk(url, retries=3):
    return openai.OpenAI(api_key="k", base_url=url, max_retries=retries)


def async_sdk(url, retries=3):
    return openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=retries)


def ask(client, **asked):
    return client.chat.completions.create(**{**ASKED, **asked}).choices[0].message.content


async def ask_async(client, **asked):
    return (await client.chat.completions.create(**{**ASKED, **asked})).choices[0].message.content


def retried_by_the_sdk(url, name):
    return ask(sdk(url("503x2-" + name)))


def retried_by_hand_with_another_prompt(url, name):
    client = sdk(url("500x1-" + name), 0)
    try:
        return ask(client)
    except openai.InternalServerError:
        return ask(client, messages=[*MESSAGES, {"role": "user", "content": "again"}])


def retried_in_the_handler_and_raised_there(url, name):
    client = sdk(url("429x1-" + name), 0)
    try:
        return ask(client)
    except openai.RateLimitError:
        ask(client)
        raise ValueError("the answer is wrong")


async def retried_after_a_cut_stream(url, name):
    async def once():
        async with aiohttp.ClientSession() as session:
            asked = session.post(url("cutx1-" + name) + "/chat/completions", json={**ASKED, "stream": True})
            async with asked as answer:
                return deltas([line async for line in answer.content])

    try:
        return await asyncio.wait_for(once(), 30)
    except aiohttp.ClientPayloadError:
        return await asyncio.wait_for(once(), 30)


def another_host_answers(url, name):
    try:
        return ask(sdk(url("503"), 0))
    except openai.InternalServerError:
        return ask(sdk(url("ok").replace("127.0.0.1", "localhost")))


def failed_tool_at_the_end(url, name):
    ask(sdk(url("ok")))
    try:
        urllib.request.urlopen(url("503").replace("127.0.0.1", "localhost") + "/tool")
    except urllib.error.HTTPError:
        return ""


def failed_tool_and_an_error_of_the_program(url, name):
    try:
        httpx.get(url("cut") + "/tool").raise_for_status()
    except httpx.HTTPError:
        pass
    raise KeyError("the row has no label")


def refused_tool(url, name):
    try:
        httpx.get("http://127.0.0.1:9/tool")
    except httpx.ConnectError:
        return "no tool"


def posted_to_a_site(url, name):
    return requests.post(url("503") + "/messages", json={"text": "hello"}).status_code


def rejected(url, name):
    return ask(sdk(url("401")))


def rejected_and_handled(url, name):
    try:
        return ask(sdk(url("400")))
    except openai.BadRequestError:
        return "refused"


def slow_stream(url, name):
    parts = sdk(url("slow")).chat.completions.create(**ASKED, stream=True)
    return "".join(part.choices[0].delta.content or "" for part in parts)


def stream_left_early(url, name):
    with httpx.stream("POST", url("slow") + "/chat/completions", json={**ASKED, "stream": True}) as answer:
        for line in answer.iter_lines():
            return line


def text_about_errors(url, name):
    asked = {**ASKED, "messages": [{"role": "user", "content": 'event: error\ndata: {"error": {"code": 429}}'}]}
    return requests.post(url("ok") + "/chat/completions", json=asked).json()["object"]


async def cancelled_branch(url, name):
    fast = asyncio.ensure_future(ask_async(async_sdk(url("ok"))))
    slow = asyncio.ensure_future(ask_async(async_sdk(url("hang"))))
    await asyncio.wait({fast, slow}, return_when=asyncio.FIRST_COMPLETED)
    slow.cancel()
    return fast.result()


async def own_limit(url, name):
    try:
        return await asyncio.wait_for(ask_async(async_sdk(url("hang"))), 0.3)
    except asyncio.TimeoutError:
        return "too slow"


async def own_limit_raised(url, name):
    return await asyncio.wait_for(ask_async(async_sdk(url("hang"))), 0.3)


async def hedged(url, name):
    """The same request twice, of which one fails."""
    asked = [ask_async(async_sdk(url("503x1-" + name), 0)) for _ in range(2)]
    return next(each for each in await asyncio.gather(*asked, return_exceptions=True) if isinstance(each, str))


async def branches_that_retry(url, name):
    asked = [
        ask_async(async_sdk(url("429x1-%s-%d" % (name, each))), messages=[{"role": "user", "content": str(each)}])
        for each in range(3)
    ]
    return "".join(await asyncio.gather(*asked))


def threads_that_retry(url, name):
    def one(number):
        return ask(sdk(url("503x1-%s-%d" % (name, number))), messages=[{"role": "user", "content": str(number)}])

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        return "".join(pool.map(one, range(3)))


def a_pool_whose_first_fails(url, name):
    """Another host answers something else once the first has failed."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        if pool.submit(ask, sdk(url("503"), 0)).exception():
            other = sdk(url("ok").replace("127.0.0.1", "localhost"))
            for found in concurrent.futures.as_completed([pool.submit(ask, other, temperature=0.5)]):
                return found.result()


async def hedged_over_two_hosts(url, name):
    urls = url("503"), url("slow").replace("127.0.0.1", "localhost")
    asked = [asyncio.create_task(ask_async(async_sdk(each, 0))) for each in urls]
    return next(each for each in await asyncio.gather(*asked, return_exceptions=True) if isinstance(each, str))


def echoed(url, kind, text):
    return requests.post(url("echo") + "/chat/completions", json={**ASKED, "kind": kind, "answer": text}).text


def stream_of_another_protocol(url, name):
    return echoed(url, "text/event-stream", 'data: {"text": "a", "done": false}\n\n')


def stream_with_a_reason_to_end(url, name):
    ends = 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
    return echoed(url, "text/event-stream", 'data: {"choices": [{"delta": {"content": "a"}}]}\n\n' + ends)


def failed_tool_of_a_model(url, name):
    item = '{"type": "response.output_item.done", "item": {"type": "mcp_call", "error": "the tool is unavailable"}}'
    return echoed(url, "text/event-stream", "data: %s\n\n" % item)


def posted_a_form_to_a_chat(url, name):
    return requests.post(url("503") + "/chat", files={"text": b"hello"}).status_code


def pipe_that_broke(url, name):
    ended = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE)
    ended.wait()
    with ended:
        ended.stdin.write(b"x" * 100_000)


class OutOfStock(Exception):
    code = enum.Enum("Code", "UNAVAILABLE").UNAVAILABLE


def own_code(url, name):
    raise OutOfStock


class NotRetryable(Exception):
    retryable = False


def stated_as_not_retryable(url, name):
    try:
        return ask(sdk(url("503"), 0))
    except openai.InternalServerError as failed:
        raise NotRetryable from failed


WAYS = {
    **dict.fromkeys(
        (
            *(retried_by_the_sdk, retried_by_hand_with_another_prompt, retried_after_a_cut_stream),
            *(another_host_answers, failed_tool_at_the_end, refused_tool, posted_to_a_site, rejected_and_handled),
            slow_stream,
            *(stream_left_early, text_about_errors, cancelled_branch, own_limit, hedged, branches_that_retry),
            *(threads_that_retry, a_pool_whose_first_fails, hedged_over_two_hosts, stream_of_another_protocol),
            *(stream_with_a_reason_to_end, failed_tool_of_a_model, posted_a_form_to_a_chat),
        ),
        "ok",
    ),
    retried_in_the_handler_and_raised_there: "program_error",
    failed_tool_and_an_error_of_the_program: "program_error",
    rejected: "program_error",
    own_limit_raised: "program_error",
    pipe_that_broke: "program_error",
    own_code: "program_error",
    stated_as_not_retryable: "program_error",
}
STATUSES = {way.__name__: status for way, status in WAYS.items()}


def run(example, candidate):
    if example["way"] is None:
        return STATUSES
    result = globals()[example["way"]](lambda part: "%s/%s" % (example["host"], part), example["name"])
    return json.dumps(asyncio.run(result) if asyncio.iscoroutine(result) else result)


def score(example, output):
    return 1.0
