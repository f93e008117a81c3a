"""JavaScript programs that misbehave, behind `gepa-server --command`, over a real socket."""

import shutil
import sys
from pathlib import Path

import pytest

from gepa_client import RpcClient
from sandbox_runtime import running_server

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "clients" / "typescript" / "dist" / "index.js"
PROGRAM = Path(__file__).parent / "data" / "misbehaves.mjs"
SERVER = Path(sys.executable).with_name("gepa-server")

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not PACKAGE.is_file(), reason="the TypeScript package has not been built"),
]

GOOD = {"way": "good", "output": "still here"}


@pytest.fixture(scope="module")
def endpoint():
    command = [
        str(SERVER),
        "--workers",
        "2",
        "--example-timeout-s",
        "1.5",
        "--command",
        "node",
        str(PROGRAM),
        str(PACKAGE),
    ]
    with running_server(command) as running:
        yield running


async def one(endpoint, data):
    async with RpcClient(endpoint.url, token=endpoint.token) as client:
        answer = await client.evaluate({"prompt": ""}, [{"id": "0", "data": data}])
    return answer["results"][0]


@pytest.mark.parametrize(
    ("data", "status", "kind", "message"),
    [
        ({"way": "exit"}, "program_error", "process_died", "7"),
        ({"way": "segfault"}, "program_error", "process_died", "SIGSEGV"),
        ({"way": "hang"}, "timeout", "timeout", "1.5"),
        ({"way": "hang_busy"}, "timeout", "timeout", "1.5"),
        ({"way": "raise"}, "program_error", "RangeError", "out of range"),
        ({"way": "not_json"}, "program_error", "invalid_result", "bigint"),
        ({"way": "good", "score": "high"}, "program_error", "invalid_result", "score"),
        ({"way": "good", "score": None}, "program_error", "invalid_result", "score"),
    ],
)
async def test_a_failure_is_of_its_kind_and_the_next_example_succeeds(endpoint, data, status, kind, message):
    result = await one(endpoint, data)
    assert (result["status"], result["error"]["type"]) == (status, kind)
    assert message in result["error"]["message"]
    assert (await one(endpoint, GOOD))["output"] == "still here"


@pytest.mark.parametrize("way", ["print", "flood"])
async def test_what_is_printed_never_becomes_an_answer(endpoint, way):
    assert (await one(endpoint, {"way": way, "output": "mine"}))["output"] == "mine"
    assert (await one(endpoint, GOOD))["output"] == "still here"


async def test_neighbours_of_a_death_and_of_a_busy_loop_get_their_results(endpoint):
    ways = ["exit", "good", "hang_busy", "good", "segfault", "good"]
    batch = [{"id": str(at), "data": {"way": way, "output": at}} for at, way in enumerate(ways)]
    async with RpcClient(endpoint.url, token=endpoint.token) as client:
        results = (await client.evaluate({"prompt": ""}, batch))["results"]
    assert [result["status"] for result in results] == ["program_error", "ok", "timeout", "ok", "program_error", "ok"]
    assert [result["output"] for result in results[1::2]] == [1, 3, 5]
