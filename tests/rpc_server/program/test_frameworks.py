"""Client libraries and frameworks as they are installed: how their calls become steps."""

import json
from pathlib import Path

import pytest

from rpc_server.worker.steps import flattened
from tests.rpc_server.failure_matrix import missing_rows
from tests.rpc_server.model_provider import ANSWER, provider
from tests.rpc_server.program.conftest import PACKAGE, needs_node
from tests.support.installed import node_with, python_with

__all__ = ["provider"]

CALLS = Path(__file__).parent / "data" / "frameworks"
REQUEST_TIMEOUT_S = 90.0  # of requests that are answered, however busy the machine is

WITH_TOOLS = ("ai", "ai 7", "ai 7 by hand", "ai 7 by itself", "@langchain/langgraph", "@mastra/core")
BY_HAND, BY_ITSELF = " by hand", " by itself"

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]  # the first run installs the libraries


def node_libraries() -> Path:
    """The folder with the libraries for Node."""
    return node_with("frameworks-node", CALLS / "node")


def name_of(name: str) -> str:
    """The name of a library on the page, which has a row for each way of tracing it."""
    return name.removesuffix("_v2").removesuffix(BY_HAND).removesuffix(BY_ITSELF).removesuffix(" 7")


async def test_spans_of_instrumented_libraries_are_steps_in_python(opened, provider):
    python = python_with("frameworks-python", CALLS / "requirements.txt")
    env = {"PYTHONDONTWRITEBYTECODE": "", "PROVIDER_URL": provider, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    env["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
    limits = {"start_timeout_s": 300.0, "example_timeout_s": REQUEST_TIMEOUT_S}
    async with opened("traced_calls.py", root=CALLS, python=python, workers=1, env=env, **limits) as running:
        libraries = running.program.info.seed_candidate
        (about,) = await running.evaluate({"library": None})
        results = await running.evaluate(
            *({"library": library} for library in libraries), capture_traces=True, seconds=REQUEST_TIMEOUT_S
        )
    for library, result in zip(libraries, results, strict=True):
        assert result["status"] == "rollout", (library, result)
        [step] = result["trajectory"]["steps"]
        assert step["component"] == library, (library, step)
        system, user = step["inputs"]["messages"]
        assert (system["role"], user) == ("system", {"role": "user", "content": "Rome?"})
        assert libraries[library] in system["content"]
        assert step["outputs"] == ANSWER
        if library == "pydantic_ai":
            [tool] = step["steps"]
            assert (tool["name"], tool["inputs"], tool["outputs"]) == ("weather", {"city": "Rome"}, "sunny")
        else:
            assert (step["usage"]["input_tokens"], step["usage"]["output_tokens"]) == (100, 20)
    assert missing_rows({name_of(name): version for name, version in about["output"].items()}) == []


@needs_node
async def test_calls_with_libraries_are_steps_in_node(opened, provider):
    folder = node_libraries()
    command = ("node", str(CALLS / "traced_calls.mjs"), str(PACKAGE), str(folder))
    limits = {"start_timeout_s": 300.0, "example_timeout_s": REQUEST_TIMEOUT_S}
    async with opened(command=command, workers=1, env={"PROVIDER_URL": provider}, **limits) as running:
        (about,) = await running.evaluate({"library": None})
        versions = about["output"]
        one_by_one = [
            await running.one({"library": library}, capture_traces=True, seconds=REQUEST_TIMEOUT_S)
            for library in versions
        ]
    for library, result in zip(versions, one_by_one, strict=True):
        assert result["status"] == "ok", (library, result)
        steps = list(flattened(result["trajectory"]["steps"]))
        asked = [step for step in steps if step.get("component") == library]
        assert asked, (library, steps)
        system, user = asked[0]["inputs"]["messages"][:2]
        assert system == {"role": "system", "content": f"Answer with the library {library}."}
        assert user == {"role": "user", "content": "Rome?"}
        assert asked[-1]["outputs"] == ANSWER
        tools = [step for step in steps if step.get("name") == "weather"]
        assert len(tools) == (library in WITH_TOOLS)
        assert all("sunny" in json.dumps(tool["outputs"]) for tool in tools)
        tokens = 100 * max(len(asked), 1 + len(tools))
        assert sum(step["usage"]["input_tokens"] for step in asked) == tokens
        if library.endswith(BY_HAND):
            assert result["usage"]["input_tokens"] == tokens
    assert [row for name, version in versions.items() for row in missing_rows({name_of(name): version})] == []
