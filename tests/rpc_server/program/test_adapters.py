"""GEPA adapters, unchanged: whole batches, trajectories that stay, state that travels."""

import asyncio

import pytest
import pytest_asyncio

from protocol.errors import ProgramFailed, TrajectoryExpired

SEED = {"prompt": "seed"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def served(opened):
    def open_adapter(name, **settings):
        return opened(adapter=f"adapters:{name}", seed_candidate=SEED, **settings)

    return open_adapter


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(served):
    """`adapters.Adapter` with the usual settings, which several tests ask."""
    async with served("Adapter") as running:
        yield running


def reflection(results, rows, **more):
    batch = [{"id": str(number), "data": row} for number, row in enumerate(rows)]
    return {
        "candidate": SEED,
        "eval_batch": {"batch": batch, "results": results},
        "components_to_update": ["prompt"],
        **more,
    }


async def test_an_adapter_describes_itself(running, served):
    usual = {"refs", "reflective_datasets", "exact_values", "images"}
    assert running.program.info.name == "Adapter"
    assert running.program.info.seed_candidate == SEED
    assert running.program.capabilities == usual
    assert running.program.limits.whole_batches is True
    async with served("Proposing") as proposing:
        assert proposing.program.capabilities == usual | {"proposals"}
        params = {"candidate": SEED, "reflective_dataset": {}, "components_to_update": ["prompt"]}
        assert await proposing.program.call("propose_new_texts", params) == {"texts": {"prompt": "seed!"}}
    async with served("Counting") as counting:
        assert counting.program.capabilities == usual | {"adapter_state"}


async def test_an_adapter_is_made_with_its_arguments_imports_included(served):
    arguments = {"factor": 2.0, "measure": {"$import": "adapters:measure"}}
    async with served("Adapter", adapter_args=arguments) as running:
        assert (await running.one({"text": "abc"}))["score"] == 60.0


async def test_a_batch_is_one_call_and_its_metric_calls_are_spread_without_loss(running):
    results = await running.evaluate({"text": "a"}, {"text": "bb"}, {"text": "ccc"})
    assert [result["score"] for result in results] == [1.0, 2.0, 3.0]
    assert [result["metric_calls"] for result in results] == [4, 3, 3]
    assert (await running.one({"text": "a", "calls": 0}))["metric_calls"] == 0


async def test_trajectories_stay_in_the_process_and_come_back_as_they_were(running):
    rows = [{"text": "a"}, {"text": "bb"}]
    results = await running.evaluate(*rows, capture_traces=True)
    assert all("trajectory" not in result for result in results)
    answer = await running.program.call("make_reflective_dataset", reflection(results, rows))
    assert answer["dataset"]["prompt"] == [
        {"Inputs": "seeda", "Score": 1.0, "Output": "a"},
        {"Inputs": "seedbb", "Score": 2.0, "Output": "bb"},
    ]
    other = await running.evaluate({"text": "ccc"}, capture_traces=True)
    mixed = reflection([results[1], *other], [rows[1], {"text": "ccc"}])
    answer = await running.program.call("make_reflective_dataset", mixed)
    assert [record["Output"] for record in answer["dataset"]["prompt"]] == ["bb", "ccc"]


async def test_the_refs_of_a_process_that_ended_have_expired(running):
    results = await running.evaluate({"text": "a"}, capture_traces=True)
    assert (await running.one({"do": "exit"}))["error"]["type"] == "process_died"
    with pytest.raises(TrajectoryExpired) as expired:
        await running.program.call("make_reflective_dataset", reflection(results, [{"text": "a"}]))
    assert expired.value.details["refs"] == [results[0]["trajectory_ref"]]


async def test_trajectories_are_kept_up_to_so_many_bytes_whole_batches_oldest_first(served):
    big = {"text": "x" * 400_000}
    async with served("Adapter", max_trace_bytes=2_000_000) as running:
        first, second = [await running.evaluate(big, {"text": "a"}, capture_traces=True) for _ in range(2)]
        for results in (first, second):
            await running.program.call("make_reflective_dataset", reflection(results, [big, {"text": "a"}]))
        await running.evaluate(big, capture_traces=True)
        await running.program.call("make_reflective_dataset", reflection(second, [big, {"text": "a"}]))
        with pytest.raises(TrajectoryExpired) as expired:
            await running.program.call("make_reflective_dataset", reflection(first, [big, {"text": "a"}]))
        assert expired.value.details["refs"] == [result["trajectory_ref"] for result in first]
        too_large = {"text": "x" * 3_000_000}
        newest = reflection(await running.evaluate(too_large, capture_traces=True), [too_large])
        assert len((await running.program.call("make_reflective_dataset", newest))["dataset"]["prompt"]) == 1


async def test_an_exception_fails_every_example_of_the_batch_with_its_traceback(running):
    results = await running.evaluate({"text": "a"}, {"do": "raise"})
    assert [result["status"] for result in results] == ["program_error"] * 2
    assert results[0]["error"]["type"] == "ValueError"
    assert "adapters.py" in results[0]["error"]["traceback"]
    cut_off = await running.evaluate({"text": "a"}, {"do": "outage"})
    assert [result["status"] for result in cut_off] == ["infra_error"] * 2


@pytest.mark.parametrize(("do", "message"), [("short", "0 outputs for 2 examples"), ("nothing", "without `outputs`")])
async def test_a_batch_of_the_wrong_shape_is_an_invalid_result_for_all(running, do, message):
    for result in await running.evaluate({"do": do}, {"text": "a"}):
        assert result["error"]["type"] == "invalid_result"
        assert message in result["error"]["message"]


async def test_the_deadline_of_a_batch_is_that_of_its_examples_together(served):
    async with served("Adapter", example_timeout_s=0.5) as running:
        pid = (await running.one({"do": "pid"}))["output"]
        slept = await running.evaluate(*[{"do": "sleep", "seconds": 0.3}] * 3)
        assert [result["status"] for result in slept] == ["ok"] * 3
        slow = await running.evaluate({"do": "sleep", "seconds": 60}, {"text": "a"})
        assert [result["status"] for result in slow] == ["timeout"] * 2
        assert (await running.one({"do": "pid"}))["output"] == pid


async def test_calls_overlap_only_if_the_adapter_is_thread_safe(served):
    async def most(running):
        await asyncio.gather(*(running.one({"do": "sleep", "seconds": 0.2}) for _ in range(4)))
        return (await running.one({"do": "most"}))["output"]

    async with served("Adapter") as running:
        assert await most(running) == 1
    async with served("Adapter", concurrency=8) as running:
        assert await most(running) == 4


async def test_state_goes_out_comes_in_and_survives_the_process(served):
    rows = [{"text": "a"}, {"text": "b"}]
    async with served("Counting") as running:
        results = await running.evaluate(*rows, capture_traces=True)
        answer = await running.program.call("make_reflective_dataset", reflection(results, rows))
        assert answer["adapter_state"] == {"seen": 2}
        restored = reflection(results, rows, adapter_state={"seen": 40})
        answer = await running.program.call("make_reflective_dataset", restored)
        assert answer["adapter_state"] == {"seen": 40}
        assert (await running.one({"text": "a"}))["score"] == 41.0
        await running.one({"do": "exit"})
        assert (await running.one({"text": "a"}))["score"] == 42.0


@pytest.mark.parametrize(
    ("settings", "stage", "message"),
    [
        ({"adapter": "adapters:Missing"}, "import", "has no 'Missing'"),
        ({"adapter": "adapters"}, "import", "pkg.module:Name"),
        ({"adapter": "adapters:Shapeless"}, "adapter", "no method `evaluate`"),
        ({"adapter": "adapters:broken", "adapter_args": {"a": 1}}, "adapter", "cannot be made with ['a']"),
        ({"adapter": "adapters:Adapter", "seed_candidate": None}, "seed_candidate", "seed_candidate"),
    ],
)
async def test_the_reason_why_an_adapter_cannot_be_created_is_reported(opened, settings, stage, message):
    with pytest.raises(ProgramFailed) as failed:
        async with opened(**{"seed_candidate": SEED, **settings}):
            pass
    assert failed.value.details["stage"] == stage
    assert message in failed.value.message
