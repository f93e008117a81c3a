"""Calls a model or an HTTP server with the client library that each example names, without retries."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no download at import

import aiohttp
import boto3
import httpx
import litellm
import openai
import requests
from anthropic import Anthropic
from botocore.config import Config
from google import genai
from google.genai.types import HttpOptions
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

seed_candidate = {"prompt": "Hi"}

MESSAGES = [{"role": "user", "content": "Hi"}]
THREADS = ThreadPoolExecutor(64)
AWS = boto3.Session("key", "secret", region_name="us-east-1")


async def openai_(url, timeout):
    client = openai.AsyncOpenAI(api_key="key", base_url=url, max_retries=0, timeout=timeout)
    await client.chat.completions.create(model="model", messages=MESSAGES)


def anthropic_(url, timeout):
    client = Anthropic(api_key="key", base_url=url, max_retries=0, timeout=timeout)
    client.messages.create(model="model", messages=MESSAGES, max_tokens=9)


def litellm_(provider):
    async def call(url, timeout):
        await litellm.acompletion(
            f"{provider}/model", MESSAGES, api_key="key", api_base=url, max_retries=0, timeout=timeout
        )

    return call


async def langchain_openai_(url, timeout):
    await ChatOpenAI(model="model", api_key="key", base_url=url, max_retries=0, timeout=timeout).ainvoke("Hi")


def pydantic_ai_model(url, timeout):
    client = openai.AsyncOpenAI(api_key="key", base_url=url, max_retries=0, timeout=timeout)
    return OpenAIChatModel("model", provider=OpenAIProvider(openai_client=client))


async def pydantic_ai_(url, timeout):
    await Agent(pydantic_ai_model(url, timeout)).run("Hi")


async def pydantic_ai_fallback(url, timeout):
    model = pydantic_ai_model(url, timeout)
    await Agent(FallbackModel(model, model)).run("Hi")


def google_genai_(url, timeout):
    options = HttpOptions(base_url=url, timeout=int(timeout * 1000))
    client = genai.Client(api_key="key", http_options=options)  # it closes when nothing refers to it
    client.models.generate_content(model="model", contents="Hi")


async def httpx_(url, timeout):
    async with httpx.AsyncClient(timeout=timeout) as client:
        (await client.post(url)).raise_for_status()


def requests_(url, timeout):
    requests.post(url, timeout=timeout).raise_for_status()


async def aiohttp_(url, timeout):
    limits = aiohttp.ClientTimeout(total=timeout)
    async with aiohttp.ClientSession(timeout=limits, raise_for_status=True) as session:
        await session.post(url)


def boto3_(url, timeout):
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=timeout, read_timeout=timeout)
    client = AWS.client("bedrock-runtime", endpoint_url=url, config=config)
    client.converse(modelId="model", messages=[{"role": "user", "content": [{"text": "Hi"}]}])


CALLS = {
    "openai": ("openai", openai_),
    "anthropic": ("anthropic", anthropic_),
    "litellm": ("litellm", litellm_("openai")),
    "litellm (anthropic)": ("litellm", litellm_("anthropic")),
    "langchain-openai": ("langchain-openai", langchain_openai_),
    "pydantic-ai": ("pydantic-ai-slim", pydantic_ai_),
    "pydantic-ai (FallbackModel)": ("pydantic-ai-slim", pydantic_ai_fallback),
    "google-genai": ("google-genai", google_genai_),
    "httpx": ("httpx", httpx_),
    "requests": ("requests", requests_),
    "aiohttp": ("aiohttp", aiohttp_),
    "boto3": ("boto3", boto3_),
}


async def run(example, candidate):
    if example["library"] is None:
        return {library: version(package) for library, (package, _) in CALLS.items()}
    _, call = CALLS[example["library"]]
    given = (example["url"], example["timeout"])
    if asyncio.iscoroutinefunction(call):
        await call(*given)
    else:
        await asyncio.get_running_loop().run_in_executor(THREADS, call, *given)
    return "answered"


def score(example, output):
    return 1.0
