"""Calls a model with the library that each example names, with the spans of an instrumentation of it."""

import os
from contextlib import contextmanager
from importlib.metadata import version

from openinference.instrumentation.langchain import LangChainInstrumentor
from openinference.instrumentation.litellm import LiteLLMInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor as OpenAIInstrumentorV2

seed_candidate = {
    "openai": "Answer with the client.",
    "openai_v2": "Answer with the client, by GenAI.",
    "langchain": "Answer with a chain.",
    "litellm": "Answer with any provider.",
    "pydantic_ai": "Answer with an agent.",
}
URL = os.environ["PROVIDER_URL"]
ASKED = {"role": "user", "content": "Rome?"}


@contextmanager
def instrumented(instrumentor):
    instrumentor.instrument()
    yield
    instrumentor.uninstrument()


PACKAGES = {"openai_v2": "openai", "langchain": "langchain-core", "pydantic_ai": "pydantic-ai-slim"}


def run(example, candidate):
    if example["library"] is None:
        return {library: version(PACKAGES.get(library, library)) for library in seed_candidate}
    return globals()[example["library"]](candidate[example["library"]])


def openai(text, instrumentor=OpenAIInstrumentor):
    from openai import OpenAI

    messages = [{"role": "system", "content": text}, ASKED]
    with instrumented(instrumentor()), OpenAI(base_url=URL, api_key="none") as client:
        client.chat.completions.create(model="gpt-4o-mini", messages=messages)


def openai_v2(text):
    openai(text, OpenAIInstrumentorV2)


def langchain(text):
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_openai import ChatOpenAI

    prompt = ChatPromptTemplate.from_messages([("system", text), ("user", "{question}")])
    with instrumented(LangChainInstrumentor()):
        (prompt | ChatOpenAI(model="gpt-4o-mini", base_url=URL, api_key="none")).invoke({"question": "Rome?"})


def litellm(text):
    import litellm as library

    messages = [{"role": "system", "content": text}, ASKED]
    with instrumented(LiteLLMInstrumentor()):
        library.completion(model="openai/gpt-4o-mini", messages=messages, api_base=URL, api_key="none")


def pydantic_ai(text):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    Agent.instrument_all()
    agent = Agent(
        OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(base_url=URL, api_key="none")), instructions=text
    )

    @agent.tool_plain
    def weather(city: str) -> str:
        return "sunny"

    agent.run_sync("Rome?")
