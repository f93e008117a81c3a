"""A program whose examples each ask a model on loopback 20 times, in the way that the example names."""

# ruff: noqa: ARG001  # the names of the arguments are the contract, used or not

import asyncio
import os
from typing import Any

import httpx

URL = os.environ["MODEL_URL"]
CALLS = 20
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Which of these is right? " * 40}]}

seed_candidate = {"rules": "Answer."}
client = httpx.Client(trust_env=False)


def once() -> None:
    """Ask for a whole answer."""
    client.post(URL, json=ASKED).raise_for_status().json()


def stream() -> None:
    """Read an answer in parts."""
    with client.stream("POST", URL, json={**ASKED, "stream": True}) as answer:
        for _ in answer.iter_lines():
            pass


async def once_async(own: httpx.AsyncClient) -> None:
    """Ask for a whole answer on a loop."""
    (await own.post(URL, json=ASKED)).raise_for_status().json()


async def stream_async(own: httpx.AsyncClient) -> None:
    """Read an answer in parts on a loop."""
    async with own.stream("POST", URL, json={**ASKED, "stream": True}) as answer:
        async for _ in answer.aiter_lines():
            pass


async def repeated(call: Any) -> None:
    """Ask on a loop of its own."""
    async with httpx.AsyncClient(trust_env=False) as own:
        for _ in range(CALLS):
            await call(own)


def run(example: Any, candidate: dict[str, str]) -> str:
    """Ask in one way."""
    call = globals()[example["way"]]
    if asyncio.iscoroutinefunction(call):
        asyncio.run(repeated(call))
    else:
        for _ in range(CALLS):
            call()
    return "answered"


def score(example: Any, output: str) -> float:
    """Give every answer the same score."""
    return 1.0
