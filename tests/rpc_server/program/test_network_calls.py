"""Outages of models and of the network are no scores, and programs that handle failures are scored."""

from pathlib import Path

import pytest

from tests.rpc_server.failure_matrix import missing_rows, wrong_cells
from tests.rpc_server.scripted_host import CLOSES, HTTP_FAILURES, SOCKET_FAILURES, STATUSES, scripted_host
from tests.support.installed import python_with
from tests.support.rounds import ALL

CALLS = Path(__file__).parent / "data" / "wire"
HERE = ("openai stream", "httpx async", "aiohttp", "requests stream", "http.client")
"""Clients of the environment of the tests, one for each way in which calls are seen."""

REJECTED = (
    *("openai async", "anthropic", "litellm", "litellm (anthropic)", "langchain-openai", "pydantic-ai"),
    *("pydantic-ai (FallbackModel)", "google-genai", "httpx async", "requests", "aiohttp", "boto3"),
)
"""Clients whose errors have the status by which a model rejects what was sent."""

GRPC_CODES = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED")
OTHER_FAILURES = {
    **dict.fromkeys(("grpc", "grpc aio"), (*GRPC_CODES, *SOCKET_FAILURES)),
    **dict.fromkeys(("pymongo", "psycopg", "sqlalchemy", "redis", "redis async"), SOCKET_FAILURES),
    "websockets": (*CLOSES, "429", "503", *SOCKET_FAILURES),
    "mcp": (*STATUSES, "refused", "reset", "DNS"),
}
"""Of clients that ask no model: by these failures they raise, and what a program makes of that is its own."""

SLOW = {"example_timeout_s": 300.0, "start_timeout_s": 300.0}


@pytest.mark.timeout(300)
async def test_no_failure_of_a_model_or_the_network_is_a_score(opened):
    async with opened("clients.py", root=CALLS, concurrency=4, env={"CLIENTS": ",".join(HERE)}, **SLOW) as running:
        assert await wrong_cells(running, dict.fromkeys(HERE, HTTP_FAILURES), swallow=(False, True)) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_no_failure_is_a_score_with_any_client(opened):
    python = python_with("network-clients", CALLS / "requirements.txt")
    env = {"PYTHONDONTWRITEBYTECODE": ""}  # byte code is kept
    async with opened("clients.py", root=CALLS, python=python, env=env, **SLOW) as running:
        (about,) = await running.evaluate({"client": None}, seconds=300.0)
    versions = about["output"]
    assert len(versions) >= 27
    env["CLIENTS"] = ",".join(versions)
    async with opened("clients.py", root=CALLS, python=python, concurrency=4, env=env, **SLOW) as running:
        of_models = dict.fromkeys(versions.keys() - OTHER_FAILURES.keys(), HTTP_FAILURES)
        assert await wrong_cells(running, of_models, swallow=(False, True)) == []
        assert await wrong_cells(running, OTHER_FAILURES) == []
        assert await wrong_cells(running, dict.fromkeys(REJECTED, ("hang", "400", "401")), named=True) == []
    assert missing_rows(versions) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "executor", ["threads", *(pytest.param(way, marks=pytest.mark.long) for way in ("main thread", "event loop"))]
)
async def test_programs_that_handle_failures_are_judged_by_what_they_return(opened, executor):
    """Of each way, none is held up."""
    program = "healthy_async.py" if executor == "event loop" else "healthy.py"
    more = {"concurrency": 4} if executor == "threads" else {"workers": 1} if executor == "event loop" else {}
    async with opened(program, root=CALLS, **SLOW, **more) as running:
        (about,) = await running.evaluate({"way": None}, seconds=120.0)
        statuses = about["output"]
        async with scripted_host() as urls:
            ways = [way for _ in range(3 if ALL else 1) for way in statuses]
            rows = [{"way": way, "host": urls["host"], "name": f"{way}{n}"} for n, way in enumerate(ways)]
            results = await running.evaluate(*rows, seconds=280.0)
    found = zip(rows, results, strict=True)
    assert [(row["way"], result) for row, result in found if result["status"] != statuses[row["way"]]] == []


async def test_a_result_in_place_of_a_model_that_failed_is_none(opened):
    ways = (
        *("swallowed", "swallowed_last", "in_a_pool", "in_a_branch", "in_an_own_thread", "imported_meanwhile"),
        *("empty_stream", "until_the_limit", "returned_what_is_no_result", "judged_by_a_model_that_fails"),
        *("raised_for_another_reason", "in_copied_contexts", "in_tasks_without_a_loop", "sent_from_a_file"),
        "in_a_pool_of_multiprocessing",
        *("sent_in_parts", "sent_by_the_methods_of_a_connection", "asked_for_an_image", "packed_stream"),
    )
    async with scripted_host() as urls:
        env = {"HOST": urls["host"]}
        async with opened("outages.py", root=CALLS, env=env, example_timeout_s=8.0) as running:
            ways += tuple((await running.one({"way": None}))["output"])
            found = dict(zip(ways, await running.evaluate(*({"way": way} for way in ways)), strict=True))
        host = urls["host"].removeprefix("http://")
        trusted = {"trust_results": True, "env": env, "root": CALLS}
        async with opened("outages.py", **trusted) as running:
            assert (await running.one({"way": "swallowed"}))["status"] == "ok"
            assert (await running.one({"way": "judged_by_a_model_that_fails"}))["status"] == "ok"
    assert {way: result["status"] for way, result in found.items()} == dict.fromkeys(ways, "infra_error")
    swallowed = found["swallowed"]
    assert (swallowed["output"], swallowed["error"]["type"]) == (503, "model_unavailable")
    assert f"HTTP 503 from {host}" in swallowed["error"]["message"]
    assert "trust_results" in swallowed["error"]["message"]
    assert swallowed["hosts"] == {host: {"succeeded": 0, "failed": 1, "reason": "503", "retry_after_s": 0.001}}
    assert found["swallowed_last"]["hosts"][host]["succeeded"] == 1


async def test_calls_to_hosts_that_the_user_names_are_a_models(opened):
    async with scripted_host() as urls:
        settings = {"root": CALLS, "env": {"HOST": urls["host"]}}
        host = urls["host"].removeprefix("http://")
        for named, status in (((), "ok"), ((host,), "infra_error"), (("127.0.0.1",), "infra_error")):
            async with opened("outages.py", model_hosts=named, **settings) as running:
                assert (await running.one({"path": "/decide"}))["status"] == status


async def test_an_adapters_batch_in_which_a_model_failed_is_no_result(opened):
    rows = [{"way": way, "text": str(number)} for number, way in enumerate(("ok", "503", "ok"))]
    settings = {"adapter": "outages:Adapter", "root": CALLS, "seed_candidate": {"prompt": "Hi"}}
    async with scripted_host() as urls, opened(env={"HOST": urls["host"]}, **settings) as running:
        failed = await running.evaluate(*rows)
        fine = await running.evaluate(rows[0], rows[2])
        short = await running.one({**rows[1], "outputs": 0})
    assert [result["status"] for result in (*failed, short)] == ["infra_error"] * 4
    assert [result["output"] for result in failed] == [200, 503, 200]
    assert [(result["status"], result["score"]) for result in fine] == [("ok", 1.0)] * 2
    assert fine[0]["hosts"] == {urls["host"].removeprefix("http://"): {"succeeded": 2, "failed": 0}}
