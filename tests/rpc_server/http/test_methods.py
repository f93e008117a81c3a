"""What each method checks, hands to the program and answers."""

from typing import Any

import pytest

from protocol import ComponentInfo, DiscoverResult, ListExamplesResult, ProgramInfo, errors
from rpc_server.methods.dataset_rows import Datasets

RUN = {"id": "r", "metric_calls": 1, "candidates": 1, "seed_score": 0.0}


def result(**fields: Any) -> dict[str, Any]:
    return {"status": "ok", "score": 0.5, "output": None, "seconds": 0.1, **fields}


def reflective(server: Any, **fields: Any) -> dict[str, Any]:
    eval_batch = {"batch": [{"id": "0", "data": "a"}], "results": [result()]}
    return {"candidate": server.seed, "eval_batch": eval_batch, "components_to_update": ["system"], **fields}


async def test_discover_describes_server_program_and_limits(start: Any, fake_program: Any) -> None:
    program = fake_program("proposals", "scoring", max_concurrency=3, whole_batches=True)
    server = await start(program, datasets=Datasets({"train": [{"a": 1}]}), max_batch_size=7, example_timeout_s=None)
    answer = await server.call("discover")
    found = DiscoverResult.model_validate(answer)
    assert found.protocol_versions == ["1"]
    assert found.program == program.info
    assert set(found.capabilities) == {
        *("batch", "idempotency", "async", "partial", "cancel", "example_timeout", "refs", "openrpc"),
        *("datasets", "proposals", "scoring"),
    }
    assert found.datasets["train"].size == 1
    assert (found.limits.max_concurrency, found.limits.max_batch_size, found.limits.whole_batches) == (3, 7, True)
    assert "example_timeout_s" not in answer["limits"]
    assert "description" not in answer["program"]["components"][0]


async def test_limits_of_the_program_that_are_smaller_than_the_settings_hold(start: Any, fake_program: Any) -> None:
    program = fake_program(whole_batches=True)
    own = {"max_batch_size": 3, "max_request_bytes": 5000, "example_timeout_s": 2.5}
    program.limits = program.limits.model_copy(update=own)
    server = await start(program, max_concurrency=2)
    limits = (await server.call("discover"))["limits"]
    assert {name: limits[name] for name in own} == own
    assert limits["max_concurrency"] == 2
    with pytest.raises(errors.LimitExceeded) as caught:
        await server.evaluate(1, 2, 3, 4)
    assert caught.value.details == {"limit": "max_batch_size", "allowed": 3, "given": 4}
    assert (await server.post(b" " * 5001))[0] == 413


async def test_every_start_is_a_new_instance(start: Any) -> None:
    instances = {(await (await start()).call("discover"))["server"]["instance_id"] for _ in range(2)}
    assert len(instances) == 2


async def test_the_contract_can_be_asked_for(server: Any) -> None:
    document = await server.call("rpc.discover")
    assert document["openrpc"].startswith("1.")
    assert "evaluate" in [method["name"] for method in document["methods"]]


@pytest.mark.parametrize("method", ["propose_new_texts", "score", "finalize", "list_examples", "apply_mutation"])
async def test_a_method_whose_capability_is_not_offered_is_not_found(server: Any, method: str) -> None:
    with pytest.raises(errors.MethodNotFound) as caught:
        await server.call(method)
    assert caught.value.details == {"method": method}
    await server.still_works()


async def test_results_come_in_the_batchs_order(server: Any) -> None:
    assert [one["output"] for one in await server.evaluate("a", "b", "c")] == ["a", "b", "c"]
    assert await server.evaluate() == []


@pytest.mark.parametrize(
    ("candidate", "unknown", "missing"),
    [({}, [], ["system"]), ({"system": "x", "sytem": "y"}, ["sytem"], []), ({"other": "x"}, ["other"], ["system"])],
)
async def test_a_candidate_must_have_the_programs_components(
    server: Any, candidate: dict[str, str], unknown: list[str], missing: list[str]
) -> None:
    with pytest.raises(errors.UnknownCandidate) as caught:
        await server.call("evaluate", {"candidate": candidate, "batch": []})
    assert caught.value.details == {"unknown": unknown, "missing": missing}
    await server.still_works()


async def test_a_component_to_update_must_be_the_candidates(server: Any) -> None:
    with pytest.raises(errors.UnknownCandidate) as caught:
        await server.call("make_reflective_dataset", reflective(server, components_to_update=["system", "nonsense"]))
    assert caught.value.details == {"unknown": ["nonsense"]}


async def test_a_batch_beyond_the_limit_is_refused_unread(start: Any) -> None:
    server = await start(max_batch_size=2)
    with pytest.raises(errors.LimitExceeded) as caught:
        await server.call("evaluate", {"candidate": server.seed, "batch": ["not an example"] * 3})
    assert caught.value.details == {"limit": "max_batch_size", "allowed": 2, "given": 3}
    with pytest.raises(errors.LimitExceeded):
        await server.call("make_reflective_dataset", {"eval_batch": {"batch": [1, 2, 3], "results": []}})
    assert len(await server.evaluate("a", "b")) == 2


async def test_as_many_results_as_examples_are_needed(start: Any, fake_program: Any) -> None:
    server = await start(fake_program("scoring"))
    short = {"batch": [{"id": "0", "data": "a"}], "results": []}
    for method, params, path in (
        ("score", short, "results"),
        ("make_reflective_dataset", reflective(server, eval_batch=short), "eval_batch.results"),
    ):
        with pytest.raises(errors.InvalidParams) as caught:
            await server.call(method, params)
        assert caught.value.details["errors"][0]["path"] == path


@pytest.mark.parametrize("score", [float("nan"), "0.5", None, True])
async def test_a_result_sent_back_with_a_bad_score_is_refused(server: Any, score: Any) -> None:
    eval_batch = {"batch": [{"id": "0", "data": "a"}], "results": [result(score=score)]}
    with pytest.raises(errors.InvalidParams) as caught:
        await server.call("make_reflective_dataset", reflective(server, eval_batch=eval_batch))
    assert caught.value.details["errors"][0]["path"].startswith("eval_batch.results[0]")


async def test_the_program_sees_params_without_meta(start: Any, fake_program: Any) -> None:
    program = fake_program("proposals", "adapter_state")
    program.answers = {
        "make_reflective_dataset": {"dataset": {"system": [{"Feedback": "f"}]}, "adapter_state": 2},
        "propose_new_texts": {"texts": {"system": "new"}},
    }
    server = await start(program)
    answer = await server.call("make_reflective_dataset", reflective(server, adapter_state=1), trace_id="t")
    assert answer == program.answers["make_reflective_dataset"]
    proposal = {"candidate": server.seed, "reflective_dataset": answer["dataset"], "components_to_update": ["system"]}
    assert await server.call("propose_new_texts", proposal, call_id="p") == {"texts": {"system": "new"}}
    assert program.calls == [
        ("make_reflective_dataset", reflective(server, adapter_state=1)),
        ("propose_new_texts", proposal),
    ]


async def test_finalize_reaches_the_program(start: Any, fake_program: Any) -> None:
    program = fake_program("finalize")
    program.answers = {"finalize": {"message": "done"}}
    server = await start(program)
    final = {"best_candidate": server.seed, "best_score": 0.5, "run": RUN}
    assert await server.call("finalize", final) == {"message": "done"}


@pytest.mark.parametrize(
    "answer", [{}, {"dataset": {"system": "text"}}, {"dataset": {"system": ["text"]}}, {"dataset": 5}]
)
async def test_a_programs_answer_that_breaks_the_contract_is_its_failure(
    start: Any, fake_program: Any, answer: dict[str, Any]
) -> None:
    program = fake_program()
    program.answers["make_reflective_dataset"] = answer
    server = await start(program)
    with pytest.raises(errors.ProgramFailed) as caught:
        await server.call("make_reflective_dataset", reflective(server))
    assert caught.value.details == {"stage": "make_reflective_dataset"}
    assert "dataset" in caught.value.message
    await server.still_works()


async def test_a_programs_failure_is_returned_unchanged(server: Any) -> None:
    server.program.answers["make_reflective_dataset"] = errors.ProgramFailed("it broke", stage="x", log_tail="the end")
    with pytest.raises(errors.ProgramFailed) as caught:
        await server.call("make_reflective_dataset", reflective(server))
    assert (caught.value.message, caught.value.details) == ("it broke", {"stage": "x", "log_tail": "the end"})


class TestRowsHeldHere:
    ROWS = Datasets({"train": [{"q": number} for number in range(5)]})

    async def test_they_are_listed_page_by_page(self, start: Any) -> None:
        server = await start(datasets=self.ROWS)
        page = await server.call("list_examples", {"split": "train", "offset": 3, "limit": 10})
        assert page == {
            "examples": [
                {"id": "3", "split": "train", "data": {"q": 3}},
                {"id": "4", "split": "train", "data": {"q": 4}},
            ],
            "total": 5,
        }
        assert ListExamplesResult.model_validate(page)
        assert (await server.call("list_examples", {"split": "train", "offset": 9}))["examples"] == []

    async def test_without_sharing_only_ids_leave(self, start: Any) -> None:
        server = await start(datasets=Datasets({"train": [{"q": 1}]}, share_rows=False))
        page = await server.call("list_examples", {"split": "train"})
        assert page == {"examples": [{"id": "0", "split": "train"}], "total": 1}

    async def test_an_example_by_name_gets_its_row(self, start: Any) -> None:
        server = await start(datasets=self.ROWS)
        batch = [{"id": "4", "split": "train"}, {"id": "x", "data": "inline"}]
        results = (await server.call("evaluate", {"candidate": server.seed, "batch": batch}))["results"]
        assert [one["output"] for one in results] == [{"q": 4}, "inline"]

    async def test_the_program_reflects_on_the_row_itself(self, start: Any) -> None:
        server = await start(datasets=self.ROWS)
        server.program.answers["make_reflective_dataset"] = {"dataset": {}}
        eval_batch = {"batch": [{"id": "2", "split": "train"}], "results": [result()]}
        await server.call("make_reflective_dataset", reflective(server, eval_batch=eval_batch))
        assert server.program.calls[0][1]["eval_batch"]["batch"] == [{"id": "2", "data": {"q": 2}}]

    @pytest.mark.parametrize(
        ("split", "identifier", "ids"), [("train", "5", ["5"]), ("train", "01", ["01"]), ("tr", "0", ["0"])]
    )
    async def test_an_unknown_one_is_named(self, start: Any, split: str, identifier: str, ids: list[str]) -> None:
        server = await start(datasets=self.ROWS)
        batch = [{"id": identifier, "split": split}]
        with pytest.raises(errors.UnknownExample) as caught:
            await server.call("evaluate", {"candidate": server.seed, "batch": batch})
        assert caught.value.details == {"split": split, "ids": ids}
        await server.still_works()

    async def test_a_server_without_rows_knows_none(self, server: Any) -> None:
        with pytest.raises(errors.UnknownExample):
            await server.call("evaluate", {"candidate": server.seed, "batch": [{"id": "0", "split": "train"}]})

    async def test_an_unknown_split_cannot_be_listed(self, start: Any) -> None:
        server = await start(datasets=self.ROWS)
        with pytest.raises(errors.UnknownExample) as caught:
            await server.call("list_examples", {"split": "nonsense"})
        assert caught.value.details == {"split": "nonsense", "ids": []}


async def test_a_program_without_commits_may_call_a_component_as_it_likes(start: Any, fake_program: Any) -> None:
    program = fake_program()
    seed = {"added_components": "no JSON"}
    program.info = ProgramInfo(name="fake", components=[ComponentInfo(name="added_components")], seed_candidate=seed)
    program.answers["make_reflective_dataset"] = {"dataset": {"added_components": []}}
    server = await start(program)
    asked = reflective(server, candidate=seed, components_to_update=["added_components"])
    assert await server.call("make_reflective_dataset", asked) == {"dataset": {"added_components": []}}
