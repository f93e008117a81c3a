"""Trajectories by reference: kept by group, bounded in bytes, put back in when they are reflected on."""

from typing import Any

import pytest

from protocol import errors
from rpc_server.methods.dataset_rows import Datasets


def traced(size: int = 10) -> dict[str, Any]:
    return {"trajectory": {"steps": "x" * size}}


async def reflect(server: Any, *results: dict[str, Any], answer: Any = None) -> list[dict[str, Any]]:
    """What the program gets to see of these results. `answer`: of the program, if it is not an empty dataset."""
    server.program.answers["make_reflective_dataset"] = answer or {"dataset": {}}
    eval_batch = {"batch": [{"id": "0", "data": "a"}] * len(results), "results": list(results)}
    params = {"candidate": server.seed, "eval_batch": eval_batch, "components_to_update": ["system"]}
    await server.call("make_reflective_dataset", params)
    seen: list[dict[str, Any]] = server.program.calls[-1][1]["eval_batch"]["results"]
    return seen


async def test_what_does_not_fit_travels_inline(start: Any) -> None:
    server = await start(max_trace_bytes=2000)
    small, large = await server.evaluate(traced(900), traced(1500), capture_traces=True, group="g")
    assert large["trajectory"] == traced(1500)["trajectory"]
    seen = await reflect(server, small, large)
    assert [len(result["trajectory"]["steps"]) for result in seen] == [900, 1500]
    fetched = await server.call("get_traces", {"refs": [small["trajectory_ref"]]})
    assert fetched == {"traces": [traced(900)]}


async def test_of_a_row_that_is_not_shared_the_id_is_listed_and_its_trace_has_its_data(start: Any) -> None:
    for shared in (True, False):
        rows = Datasets({"train": [{"q": 1}, {"q": 2, **traced(5)}]}, share_rows=shared)
        server = await start(datasets=rows)
        page = await server.call("list_examples", {"split": "train", "offset": 1, "limit": 1})
        shown = {"data": {"q": 2, **traced(5)}} if shared else {}
        assert page == {"examples": [{"id": "1", "split": "train", **shown}], "total": 2}
        batch = [{"id": str(at), "split": "train"} for at in range(2)]
        params = {"candidate": server.seed, "batch": batch, "capture_traces": True}
        results = (await server.call("evaluate", params, group="g"))["results"]
        assert ["trajectory_ref" in result for result in results] == [not shared, True]
        refs = [result["trajectory_ref"] for result in results if "trajectory_ref" in result]
        data = [{"trajectory": None, "data": {"q": 1}}, {**traced(5), "data": {"q": 2, **traced(5)}}]
        assert (await server.call("get_traces", {"refs": refs}))["traces"] == ([traced(5)] if shared else data)


async def test_refs_that_a_program_keeps_itself_carry_the_instance_outside_and_lose_it_inside(
    start: Any, fake_program: Any
) -> None:
    server = await start(fake_program("refs"))
    (result,) = await server.evaluate({"ref": "7"}, capture_traces=True)
    assert result["trajectory_ref"] == f"{server.service.instance_id}/7"
    (seen,) = await reflect(server, result)
    assert seen["trajectory_ref"] == "7"
    with pytest.raises(errors.TrajectoryExpired) as caught:
        await reflect(server, result, answer=errors.TrajectoryExpired(refs=["7"]))
    assert caught.value.details["refs"] == [result["trajectory_ref"]]
