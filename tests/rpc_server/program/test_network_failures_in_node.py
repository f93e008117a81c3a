"""Clients of npm as they are installed: no failure of a host becomes a score, and no healthy example is held up."""

from pathlib import Path

import pytest

from tests.rpc_server.failure_matrix import missing_rows, wrong_cells
from tests.rpc_server.program.conftest import PACKAGE, needs_node
from tests.rpc_server.program.test_frameworks import CALLS as FRAMEWORKS
from tests.rpc_server.program.test_frameworks import node_libraries
from tests.rpc_server.scripted_host import CLOSES, HTTP_FAILURES, SOCKET_FAILURES, STATUSES, scripted_host
from tests.support.installed import node_with
from tests.support.rounds import ALL

CALLS = Path(__file__).parent / "data" / "network"
WAYS = (*HTTP_FAILURES, "hang", "400", "401", "ok")
SECONDS = 120.0
HEALTHY_RUNS = 10 if ALL else 1
"""Of each way."""

OF_MODELS = ("ai 6", "ai 7", "@mastra/core")
SHORT = ("ai 7", "ai 7, text stream", "openai, stream", "undici", "fetch", "node:http")
"""One for each way in which calls are seen; run by `make test`."""
OF_SHORT = ("ai-7", "@ai-sdk/openai-4", "openai", "undici", "zod")
"""Their packages, which are installed alone: all that the further ones need takes 13 seconds of CPU more."""
FURTHER = (
    *(f"{client}{way}" for client in OF_MODELS for way in ("", ", stream", ", text stream")),
    *(f"{client}{way}" for client in ("openai", "@anthropic-ai/sdk", "@langchain/openai") for way in ("", ", stream")),
)
LONG = (
    *("ai 5", "ai 5, stream", "ai 5, text stream", "@google/genai", "@google/genai, stream"),
    *("@aws-sdk/client-bedrock-runtime", "@grpc/grpc-js", "axios", "axios, by hand", "got", "node-fetch"),
    *("@modelcontextprotocol/sdk", "@modelcontextprotocol/sdk, SSE", "@modelcontextprotocol/sdk, a process"),
    *("ioredis", "mongodb", "pg", "ws"),
)

OF_MCP = (*STATUSES, "refused", "reset", "DNS", "400")
OTHER_FAILURES = {
    "@grpc/grpc-js": (*SOCKET_FAILURES, "reset stream", "silent stream", "4", "8", "14", "3", "0"),
    "@modelcontextprotocol/sdk": (*OF_MCP, "hang", "ok"),
    "@modelcontextprotocol/sdk, SSE": OF_MCP,
    "@modelcontextprotocol/sdk, a process": ("a process that ends",),
    **dict.fromkeys(("ioredis", "mongodb", "pg"), SOCKET_FAILURES),
    "ws": (*CLOSES, "1000", "429", "503", *SOCKET_FAILURES),
}
"""Of clients that ask no model."""

WITHOUT = {
    "ai 5, stream": ("cut",),  # it waits for ever
    **dict.fromkeys([f"{client}, text stream" for client in ("ai 5", *OF_MODELS)], ("400", "401")),  # an empty text
    **dict.fromkeys(("fetch", "node-fetch"), ("hang",)),  # they have no time-out
    "@aws-sdk/client-bedrock-runtime": (
        "event",
        "late-end",
        "unfinished",
        "body",
    ),  # AWS states no errors with status 200
}
"""Ways of answering with which a client is not asked."""

pytestmark = [
    pytest.mark.timeout(600),  # the first run installs the libraries
    needs_node,
]


def short_libraries() -> Path:
    return node_with("clients-node", FRAMEWORKS / "node", *OF_SHORT)


def calling(opened, folder: Path, *clients: str):
    command = ("node", str(CALLS / "calls.mjs"), str(PACKAGE), str(folder), *clients)
    return opened(command=command, workers=1, start_timeout_s=300.0, example_timeout_s=SECONDS)


async def check(opened, folder: Path, clients: tuple[str, ...]) -> None:
    async with calling(opened, folder, *clients) as running:
        versions = (await running.one({}, seconds=SECONDS))["output"]["versions"]
        failures = {
            client: [way for way in OTHER_FAILURES.get(client, WAYS) if way not in WITHOUT.get(client, ())]
            for client in clients
        }
        assert await wrong_cells(running, failures) == []
    assert missing_rows({client.split(",")[0]: version for client, version in versions.items()}) == []


async def test_no_failure_of_a_model_or_the_network_is_a_score_in_node(opened):
    await check(opened, short_libraries(), SHORT)


@pytest.mark.long
async def test_no_failure_is_a_score_with_further_clients_of_models_in_node(opened):
    await check(opened, node_libraries(), FURTHER)


@pytest.mark.long
async def test_no_failure_of_a_host_is_a_score_with_further_clients_in_node(opened):
    await check(opened, node_with("network-node", CALLS / "node"), LONG)


async def test_healthy_programs_are_not_held_up_in_node(opened):
    async with scripted_host() as urls, calling(opened, short_libraries()) as running:
        names = (await running.one({}, seconds=SECONDS))["output"]["healthy"]
        rows = [{"healthy": name, "host": urls["host"], "n": n} for n, name in enumerate(names * HEALTHY_RUNS)]
        results = await running.evaluate(*rows, seconds=SECONDS)
    assert [pair for pair in zip(rows, results, strict=True) if pair[1]["status"] != "ok"] == []
