"""Calls a host with the client that each example names, without retries; `swallow`: returns "" if that raises.

`CLIENTS`: names of those that are called, separated by commas.
"""

import asyncio
import concurrent.futures
import contextlib
import importlib
import inspect
import json
import os
import re
import urllib.request
from http.client import HTTPConnection, HTTPSConnection
from importlib.metadata import version
from urllib.parse import urlsplit

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no download at import
os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")

MESSAGES = [{"role": "user", "content": "Hi"}]
ASKED = {"model": "m", "messages": MESSAGES}
TIMEOUT = 30.0

seed_candidate = {"prompt": "Hi"}


def module(name):
    return importlib.import_module(name)


def openai_(url):
    client = module("openai").OpenAI(api_key="k", base_url=url, max_retries=0, timeout=TIMEOUT)
    return client.chat.completions.create(**ASKED).choices[0].message.content


async def openai_async(url):
    client = module("openai").AsyncOpenAI(api_key="k", base_url=url, max_retries=0, timeout=TIMEOUT)
    return (await client.chat.completions.create(**ASKED)).choices[0].message.content


def openai_stream(url):
    client = module("openai").OpenAI(api_key="k", base_url=url, max_retries=0, timeout=TIMEOUT)
    parts = client.chat.completions.create(**ASKED, stream=True)
    return "".join(part.choices[0].delta.content or "" for part in parts)


def anthropic_(url):
    client = module("anthropic").Anthropic(api_key="k", base_url=url, max_retries=0, timeout=TIMEOUT)
    return client.messages.create(**ASKED, max_tokens=9).content[0].text


async def anthropic_async(url):
    client = module("anthropic").AsyncAnthropic(api_key="k", base_url=url, max_retries=0, timeout=TIMEOUT)
    return (await client.messages.create(**ASKED, max_tokens=9)).content[0].text


def anthropic_stream(url):
    client = module("anthropic").Anthropic(api_key="k", base_url=url, max_retries=0, timeout=TIMEOUT)
    with client.messages.stream(**ASKED, max_tokens=9) as stream:
        return "".join(stream.text_stream)


def litellm_(url):
    given = {"api_key": "k", "api_base": url, "max_retries": 0, "timeout": TIMEOUT}
    return module("litellm").completion("openai/m", MESSAGES, **given).choices[0].message.content


async def litellm_anthropic(url):
    given = {"api_key": "k", "api_base": url, "max_retries": 0, "timeout": TIMEOUT}
    return (await module("litellm").acompletion("anthropic/m", MESSAGES, **given)).choices[0].message.content


async def litellm_anthropic_stream(url):
    given = {"api_key": "k", "api_base": url, "max_retries": 0, "timeout": TIMEOUT}
    parts = await module("litellm").acompletion("anthropic/m", MESSAGES, stream=True, **given)
    return "".join([part.choices[0].delta.content or "" async for part in parts])


def litellm_router(url):
    """Two deployments that fail, of which the second call finds none left."""
    given = {"model": "openai/m", "api_key": "k", "api_base": url}
    models = [{"model_name": "m", "litellm_params": {**given, "model": "openai/%s" % name}} for name in "ab"]
    router = module("litellm").Router(model_list=models, num_retries=0, cooldown_time=60, allowed_fails=0)
    for _ in range(3):
        try:
            router.completion(**ASKED)
        except Exception:
            pass
    return router.completion(**ASKED).choices[0].message.content


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def httpx_(url):
    answer = module("httpx").post(url + "/chat/completions", json=ASKED, timeout=TIMEOUT)
    answer.raise_for_status()
    return text_of(answer.json())


async def httpx_async(url):
    async with module("httpx").AsyncClient(timeout=TIMEOUT) as client:
        answer = await client.post(url + "/chat/completions", json=ASKED)
        answer.raise_for_status()
        return text_of(answer.json())


async def aiohttp_(url):
    limit = module("aiohttp").ClientTimeout(TIMEOUT)
    async with module("aiohttp").ClientSession(raise_for_status=True, timeout=limit) as session:
        async with session.post(url + "/chat/completions", json=ASKED) as answer:
            return text_of(await answer.json())


async def aiohttp_stream(url):
    async with module("aiohttp").ClientSession() as session:
        async with session.post(url + "/chat/completions", json={**ASKED, "stream": True}) as answer:
            answer.raise_for_status()
            return deltas([line async for line in answer.content])


def deltas(lines):
    data = [line[6:] for line in lines if line.startswith(b"data: ") and b"[DONE]" not in line]
    return "".join(json.loads(each)["choices"][0]["delta"].get("content", "") for each in data)


def requests_(url):
    answer = module("requests").post(url + "/chat/completions", json=ASKED, timeout=TIMEOUT)
    answer.raise_for_status()
    return text_of(answer.json())


def requests_stream(url):
    asked = {**ASKED, "stream": True}
    with module("requests").post(url + "/chat/completions", json=asked, timeout=TIMEOUT, stream=True) as answer:
        answer.raise_for_status()
        return deltas(answer.iter_lines())


def urllib3_(url):
    http = module("urllib3").PoolManager(retries=False)
    answer = http.request("POST", url + "/chat/completions", json=ASKED, timeout=TIMEOUT)
    if answer.status >= 400:
        raise RuntimeError("the model answered %d" % answer.status)
    return text_of(answer.json())


def urllib_(url):
    body, kind = json.dumps(ASKED).encode(), {"content-type": "application/json"}
    asked = urllib.request.Request(url + "/chat/completions", body, kind)
    with urllib.request.urlopen(asked, timeout=TIMEOUT) as answer:
        return text_of(json.load(answer))


def http_client(url):
    parts = urlsplit(url)
    made = (HTTPConnection if parts.scheme == "http" else HTTPSConnection)(parts.netloc, timeout=TIMEOUT)
    made.request("POST", parts.path + "/chat/completions", json.dumps(ASKED), {"content-type": "application/json"})
    answer = made.getresponse()
    body = answer.read()
    if answer.status >= 400:
        raise RuntimeError("the model answered %d" % answer.status)
    return text_of(json.loads(body))


def boto3_(url):
    config = module("botocore.config").Config(retries={"total_max_attempts": 1}, read_timeout=TIMEOUT)
    session = module("boto3").Session("key", "secret", region_name="us-east-1")
    client = session.client("bedrock-runtime", endpoint_url=url, config=config)
    answer = client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "Hi"}]}])
    return answer["output"]["message"]["content"][0]["text"]


def google_genai(url):
    genai = module("google.genai")
    options = module("google.genai.types").HttpOptions(base_url=url, timeout=int(TIMEOUT * 1000))
    client = genai.Client(api_key="k", http_options=options)  # it closes when nothing refers to it
    return client.models.generate_content(model="m", contents="Hi").text


def google_genai_stream(url):
    genai = module("google.genai")
    client = genai.Client(api_key="k", http_options=module("google.genai.types").HttpOptions(base_url=url))
    return "".join(part.text or "" for part in client.models.generate_content_stream(model="m", contents="Hi"))


def cohere_(url):
    client = module("cohere").ClientV2("k", base_url=url, timeout=TIMEOUT)
    return client.chat(**ASKED, request_options={"max_retries": 0}).message.content[0].text


def mistralai_(url):
    try:
        made = module("mistralai.client").Mistral
    except (ImportError, AttributeError):
        made = module("mistralai").Mistral
    return made(api_key="k", server_url=url).chat.complete(**ASKED).choices[0].message.content


def groq_(url):
    client = module("groq").Groq(api_key="k", base_url=url, max_retries=0, timeout=TIMEOUT)
    return client.chat.completions.create(**ASKED).choices[0].message.content


def ollama_(url):
    return module("ollama").Client(host=url).chat(**ASKED).message.content


def langchain_openai(url):
    made = module("langchain_openai").ChatOpenAI
    return made(model="m", api_key="k", base_url=url, max_retries=0, timeout=TIMEOUT).invoke("Hi").content


async def langchain_openai_stream(url):
    made = module("langchain_openai").ChatOpenAI
    client = module("httpx").AsyncClient()  # that of the library is of the first loop
    model = made(model="m", api_key="k", base_url=url, max_retries=0, timeout=TIMEOUT, http_async_client=client)
    return "".join([part.content async for part in model.astream("Hi")])


def openai_client(url):
    return module("openai").AsyncOpenAI(api_key="k", base_url=url, max_retries=0, timeout=TIMEOUT)


def pydantic_ai_model(url):
    provider = module("pydantic_ai.providers.openai").OpenAIProvider(openai_client=openai_client(url))
    return module("pydantic_ai.models.openai").OpenAIChatModel("m", provider=provider)


async def pydantic_ai(url):
    return (await module("pydantic_ai").Agent(pydantic_ai_model(url)).run("Hi")).output


async def pydantic_ai_fallback(url):
    both = module("pydantic_ai.models.fallback").FallbackModel(pydantic_ai_model(url), pydantic_ai_model(url))
    return (await module("pydantic_ai").Agent(both).run("Hi")).output


async def openai_agents(url):
    agents = module("agents")
    model = agents.OpenAIChatCompletionsModel("m", openai_client(url))
    return (await agents.Runner.run(agents.Agent("a", model=model), "Hi")).final_output


def dspy_(url):
    dspy = module("dspy")
    lm = dspy.LM("openai/m", api_key="k", api_base=url, num_retries=0, cache=False)
    return lm(messages=MESSAGES)[0]


@contextlib.contextmanager
def grpc_server(url):
    """The address of a URL; that of a server in this process which fails with a code, if the code is given."""
    if "://" in url:
        yield urlsplit(url).netloc
        return
    grpc = module("grpc")

    class Busy(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(lambda _, context: context.abort(grpc.StatusCode[url], "busy"))

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Busy(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield "127.0.0.1:%d" % port
    server.stop(None)


def grpc_(url):
    with grpc_server(url) as address, module("grpc").insecure_channel(address) as channel:
        return channel.unary_unary("/model/Sample")(b"", timeout=5)


async def grpc_aio(url):
    with grpc_server(url) as address:
        return await asked_over_grpc(address)


async def asked_over_grpc(address):
    async with module("grpc.aio").insecure_channel(address) as channel:
        return await channel.unary_unary("/model/Sample")(b"", timeout=5)


def host_and_port(url):
    parts = urlsplit(url)
    return parts.hostname, parts.port or 80


def pymongo_(url):
    host, port = host_and_port(url)
    client = module("pymongo").MongoClient(host, port, serverSelectionTimeoutMS=500, connectTimeoutMS=500)
    return str(client.db.notes.find_one())


def psycopg_(url):
    host, port = host_and_port(url)
    with module("psycopg").connect("host=%s port=%d user=u dbname=d sslmode=disable" % (host, port)) as connection:
        return str(connection.execute("SELECT 1").fetchone())


def sqlalchemy_(url):
    host, port = host_and_port(url)
    engine = module("sqlalchemy").create_engine("postgresql+psycopg://u@%s:%d/d?sslmode=disable" % (host, port))
    with engine.connect() as connection:
        return str(connection.exec_driver_sql("SELECT 1").scalar())


def redis_(url):
    host, port = host_and_port(url)
    return str(module("redis").Redis(host, port, socket_timeout=TIMEOUT).get("a"))


async def redis_async(url):
    host, port = host_and_port(url)
    client = module("redis.asyncio").Redis(host=host, port=port, socket_timeout=TIMEOUT)
    return str(await client.get("a"))


async def websockets_(url):
    async with module("websockets").connect("ws" + url[4:]) as connection:
        return str(await connection.recv())


async def mcp_(url):
    try:
        client = module("mcp.client").Client(url + "/mcp")
    except (ImportError, AttributeError):
        client = module("mcp").Client(url + "/mcp")
    async with client:
        return str(await client.list_tools())


CALLS = {
    "openai": ("openai", openai_),
    "openai async": ("openai", openai_async),
    "openai stream": ("openai", openai_stream),
    "anthropic": ("anthropic", anthropic_),
    "anthropic async": ("anthropic", anthropic_async),
    "anthropic stream": ("anthropic", anthropic_stream),
    "litellm": ("litellm", litellm_),
    "litellm (anthropic)": ("litellm", litellm_anthropic),
    "litellm stream": ("litellm", litellm_anthropic_stream),
    "litellm.Router": ("litellm", litellm_router),
    "httpx": ("httpx", httpx_),
    "httpx async": ("httpx", httpx_async),
    "aiohttp": ("aiohttp", aiohttp_),
    "aiohttp stream": ("aiohttp", aiohttp_stream),
    "requests": ("requests", requests_),
    "requests stream": ("requests", requests_stream),
    "urllib3": ("urllib3", urllib3_),
    "urllib.request": (None, urllib_),
    "http.client": (None, http_client),
    "boto3": ("boto3", boto3_),
    "google-genai": ("google-genai", google_genai),
    "google-genai stream": ("google-genai", google_genai_stream),
    "cohere": ("cohere", cohere_),
    "mistralai": ("mistralai", mistralai_),
    "groq": ("groq", groq_),
    "ollama": ("ollama", ollama_),
    "langchain-openai": ("langchain-openai", langchain_openai),
    "langchain-openai stream": ("langchain-openai", langchain_openai_stream),
    "pydantic-ai": ("pydantic-ai-slim", pydantic_ai),
    "pydantic-ai (FallbackModel)": ("pydantic-ai-slim", pydantic_ai_fallback),
    "openai-agents": ("openai-agents", openai_agents),
    "dspy": ("dspy", dspy_),
    "grpc": ("grpcio", grpc_),
    "grpc aio": ("grpcio", grpc_aio),
    "pymongo": ("pymongo", pymongo_),
    "psycopg": ("psycopg", psycopg_),
    "sqlalchemy": ("sqlalchemy", sqlalchemy_),
    "redis": ("redis", redis_),
    "redis async": ("redis", redis_async),
    "websockets": ("websockets", websockets_),
    "mcp": ("mcp", mcp_),
}


USED = os.environ["CLIENTS"].split(",") if "CLIENTS" in os.environ else []
for name in USED:  # what they import is imported here and not in an example, so that processes are forked with it
    for each in re.findall(r'module\("([\w.]+)"\)', inspect.getsource(CALLS[name][1])):
        with contextlib.suppress(ImportError):
            module(each)


def run(example, candidate):
    if example["client"] is None:
        packages = {name: CALLS[name][0] for name in USED or CALLS}
        return {name: "of Python" if package is None else version(package) for name, package in packages.items()}
    _, call = CALLS[example["client"]]
    try:
        result = call(example["url"])
        return asyncio.run(result) if asyncio.iscoroutine(result) else result
    except Exception:
        if example.get("swallow"):
            return ""
        raise


def score(example, output):
    return 1.0
