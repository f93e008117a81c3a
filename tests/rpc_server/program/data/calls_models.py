"""Calls models in several ways, and notes the usage that an example asks for alone."""

import os
import threading

import httpx
import httpx2

seed_candidate = {"prompt": "Answer."}
URL = os.environ["PROVIDER_URL"]
ASKED = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "why?"}]}


def run(example, candidate, usage):
    usage.update(example.get("noted", {}))
    return globals()[example["by"]]()


def openai():
    from openai import OpenAI

    return OpenAI(base_url=URL, api_key="x").chat.completions.create(**ASKED).choices[0].message.content


def messages():
    return httpx.post(f"{URL}/messages", json={**ASKED, "model": "claude-sonnet-4-5"}).json()["type"]


def over_httpx2():
    return httpx2.post(f"{URL}/chat/completions", json=ASKED).status_code


def twice():
    return [httpx.post(f"{URL}/chat/completions", json=ASKED).status_code for _ in range(2)]


def streamed():
    with httpx.stream("POST", f"{URL}/chat/completions", json=ASKED) as answer:
        return answer.read().decode()


def thread():
    one = threading.Thread(target=twice)
    one.start()
    one.join()


def refused():
    return httpx.post(f"{URL}/refused/chat/completions", json=ASKED).status_code


def nothing():
    return httpx.get(f"{URL}/models").status_code
