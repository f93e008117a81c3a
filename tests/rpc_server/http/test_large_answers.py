"""Results and answers that are too large: each hurts its own example, or its own call, alone."""

from pathlib import Path
from typing import Any

import pytest

from protocol import errors
from rpc_server.memory_bounds import answer_bytes, memory_bytes, share
from rpc_server.methods import service
from rpc_server.settings import Settings

LIMIT = 20_000


@pytest.mark.parametrize("call_id", [None, "c"])
async def test_a_trajectory_counts_where_it_is_sent_along_and_is_kept_behind_a_reference(
    start: Any, call_id: str | None
) -> None:
    server = await start(max_result_bytes=LIMIT)
    row = {"trajectory": ["y" * (LIMIT - 1000)], "metric_calls": 3, "usage": {"calls": 2}}
    meta = {} if call_id is None else {"call_id": call_id}
    [inline] = await server.evaluate(row, capture_traces=True, **meta)
    assert inline["error"]["type"] == "output_too_large" and "trajectory" not in inline
    assert (inline["metric_calls"], inline["usage"]) == (3, {"calls": 2})
    [kept] = await server.evaluate({**row, "other": 1}, capture_traces=True, group="g")
    assert kept["status"] == "ok" and kept["trajectory_ref"]
    [cut] = await server.evaluate({**row, "other": "x" * 2000}, capture_traces=True, group="g")
    assert cut["error"]["type"] == "output_too_large" and cut["trajectory_ref"]


async def test_a_failure_with_an_output_that_is_too_large_stays_that_failure_without_the_output(start: Any) -> None:
    server = await start(max_result_bytes=LIMIT)
    error = {"type": "RateLimitError", "message": "later"}
    [failed] = await server.evaluate({"error": error, "text": "x" * LIMIT})
    assert (failed["status"], failed["output"], failed["error"]) == ("infra_error", None, error)


async def test_an_answer_that_is_too_large_as_a_whole_ends_the_call_and_no_other(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "answer_bytes", lambda: 50_000)
    server = await start(max_result_bytes=LIMIT)
    with pytest.raises(errors.LimitExceeded) as refused:
        await server.evaluate(*["x" * 15_000] * 5)
    assert refused.value.details["limit"] == "answer_bytes"
    assert refused.value.details["allowed"] == 50_000 < refused.value.details["given"]
    assert len(await server.evaluate(*["x" * 15_000] * 3)) == 3


def test_what_is_kept_is_a_share_of_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEPA_MEMORY_MB", "1024")
    settings = Settings(program="x")
    assert (settings.max_answer_bytes, settings.max_trace_bytes) == (128 * 2**20, 128 * 2**20)
    assert (settings.max_result_bytes, answer_bytes()) == (32 * 2**20, 64 * 2**20)
    assert share(8, most=1000) == 1000
    monkeypatch.setenv("GEPA_MEMORY_MB", "999999999")
    assert memory_bytes("999999999") < 999999999 * 2**20
    for number, (cgroup, limit) in enumerate(
        (("0::/a/b\n", "sys/fs/cgroup/a/memory.max"), ("4:memory:/a/b\n", "sys/fs/cgroup/memory/memory.limit_in_bytes"))
    ):
        root = tmp_path / str(number)
        for file, text in (("proc/self/cgroup", cgroup), (limit, "4096\n")):
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text)
        assert memory_bytes("", root) == 4096
