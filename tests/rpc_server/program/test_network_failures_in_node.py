"""Clients of npm as they are installed: no failure of a host becomes a score, and no healthy example is held up."""

import shutil
from pathlib import Path

import pytest

from tests.rpc_server.program.test_frameworks import PACKAGE, install_node, node_libraries
from tests.support.installed import installed

ROOT = Path(__file__).parents[3]
CALLS = Path(__file__).parent / "data" / "network"
PAGE = ROOT / "docs" / "frameworks.md"
REJECTIONS = ("400", "401", "3")
ANSWERS = ("ok", "0", "1000")
SECONDS = 120.0
HEALTHY_RUNS = 200

OF_MODELS = ("ai 6", "ai 7", "@mastra/core")
SHORT = (
    *(f"{client}{way}" for client in OF_MODELS for way in ("", ", stream", ", text stream")),
    *(f"{client}{way}" for client in ("openai", "@anthropic-ai/sdk", "@langchain/openai") for way in ("", ", stream")),
    *("undici", "fetch", "node:http"),
)
LONG = (
    *("ai 5", "ai 5, stream", "ai 5, text stream", "@google/genai", "@google/genai, stream"),
    *("@aws-sdk/client-bedrock-runtime", "@grpc/grpc-js", "axios", "axios, by hand", "got", "node-fetch"),
    *("@modelcontextprotocol/sdk", "@modelcontextprotocol/sdk, SSE", "@modelcontextprotocol/sdk, a process"),
    *("ioredis", "mongodb", "pg", "ws"),
)

pytestmark = [
    pytest.mark.timeout(600),  # the first run installs the libraries
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not PACKAGE.is_file(), reason="the TypeScript package has not been built"),
]


async def check(opened, folder: Path, clients: tuple[str, ...]) -> None:
    command = ("node", str(CALLS / "calls.mjs"), str(PACKAGE), str(folder), *clients)
    limits = {"start_timeout_s": 300.0, "example_timeout_s": SECONDS}
    async with opened(command=command, workers=1, **limits) as running:
        about = (await running.one({}, seconds=SECONDS))["output"]
        rows = [
            {"client": client, "failure": failure}
            for client, known in about["clients"].items()
            for failure in known["failures"]
        ]
        results = await running.evaluate(*rows, seconds=SECONDS)
        names = [about["healthy"][n % len(about["healthy"])] for n in range(HEALTHY_RUNS)]
        healthy = await running.evaluate(*({"healthy": name, "n": n} for n, name in enumerate(names)), seconds=SECONDS)
    expected = {**dict.fromkeys(REJECTIONS, "program_error"), **dict.fromkeys(ANSWERS, "ok")}
    wrong = [
        (row, result)
        for row, result in zip(rows, results, strict=True)
        if result["status"] != expected.get(row["failure"], "infra_error")
    ]
    assert wrong == []
    held_up = [(name, result) for name, result in zip(names, healthy, strict=True) if result["status"] != "ok"]
    assert held_up == []
    page = PAGE.read_text()
    for client, known in about["clients"].items():
        row = f"| {client.split(',')[0]} | {known['version']} | "
        assert row in page, f"{PAGE.name} has no row that begins with {row}"


async def test_no_failure_of_a_model_or_the_network_is_a_score_in_node(opened):
    await check(opened, node_libraries(), SHORT)


@pytest.mark.long
async def test_no_failure_of_a_host_is_a_score_with_further_clients_in_node(opened):
    lock = (CALLS / "node" / "package-lock.json").read_text()
    await check(opened, installed("network-node", lock, lambda folder: install_node(folder, CALLS / "node")), LONG)
