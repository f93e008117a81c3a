"""JSON-RPC arrays: one answer per entry, one error per bad entry, and no more entries than stated."""

from typing import Any

from protocol import errors


def discover(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "discover"}


async def test_each_entry_gets_its_answer_and_each_bad_one_its_error(server: Any) -> None:
    entries = [discover(1), 5, {"jsonrpc": "2.0", "id": 2}, {"jsonrpc": "2.0", "id": 3, "method": "nonsense"}, []]
    status, answers = await server.post([*entries, discover(4)])
    assert status == 200
    assert [(one["id"], one.get("error", {}).get("code")) for one in answers] == [
        (1, None),
        (None, errors.InvalidRequest.code),
        (None, errors.InvalidRequest.code),
        (3, errors.MethodNotFound.code),
        (None, errors.InvalidRequest.code),
        (4, None),
    ]
    await server.still_works()


async def test_notifications_in_a_batch_get_no_answer(server: Any) -> None:
    note = {
        "jsonrpc": "2.0",
        "method": "evaluate",
        "params": {"candidate": server.seed, "batch": [{"id": "0", "data": "noted"}]},
    }
    status, answers = await server.post([note, discover(1)])
    assert (status, [one["id"] for one in answers]) == (200, [1])
    assert await server.post([note, note]) == (204, None)
    assert server.program.ran == ["noted"] * 3


async def test_an_empty_batch_is_one_invalid_request(server: Any) -> None:
    status, answer = await server.post([])
    assert (status, answer["error"]["code"], answer["id"]) == (200, errors.InvalidRequest.code, None)


async def test_a_batch_of_100_000_is_one_refusal_that_runs_nothing(server: Any) -> None:
    status, answer = await server.post([{"jsonrpc": "2.0", "id": 1, "method": "evaluate"}] * 100_000)
    assert (status, answer["error"]["code"]) == (200, errors.LimitExceeded.code)
    assert answer["error"]["data"] == {
        "retryable": False,
        "limit": "max_batch_entries",
        "allowed": 100,
        "given": 100_000,
    }
    assert server.program.ran == []
    await server.still_works()


async def test_the_entries_of_a_batch_run_at_the_same_time(server: Any) -> None:
    def entry(number: int, data: dict[str, str]) -> dict[str, Any]:
        batch = [{"id": "0", "data": data}]
        return {**discover(number), "method": "evaluate", "params": {"candidate": server.seed, "batch": batch}}

    _, answers = await server.post([entry(0, {"wait": "gate"}), entry(1, {"open": "gate"})])
    assert [(one["id"], one["result"]["results"][0]["status"]) for one in answers] == [(0, "ok"), (1, "ok")]
