"""What each method checks, hands to the program and answers."""

from typing import Any

import pytest

from protocol import errors


def result(**fields: Any) -> dict[str, Any]:
    return {"status": "ok", "score": 0.5, "output": None, "seconds": 0.1, **fields}


def reflective(server: Any, **fields: Any) -> dict[str, Any]:
    eval_batch = {"batch": [{"id": "0", "data": "a"}], "results": [result()]}
    return {"candidate": server.seed, "eval_batch": eval_batch, "components_to_update": ["system"], **fields}


async def test_limits_of_the_program_that_are_smaller_than_the_settings_hold(start: Any, fake_program: Any) -> None:
    program = fake_program(whole_batches=True)
    own = {"max_batch_size": 3, "max_request_bytes": 5000, "max_result_bytes": 4000, "example_timeout_s": 2.5}
    program.limits = program.limits.model_copy(update=own)
    server = await start(program, concurrency=2)
    limits = (await server.call("discover"))["limits"]
    assert {name: limits[name] for name in own} == own
    assert limits["max_concurrency"] == 2
    with pytest.raises(errors.LimitExceeded) as caught:
        await server.evaluate(1, 2, 3, 4)
    assert caught.value.details == {"limit": "max_batch_size", "allowed": 3, "given": 4}
    assert (await server.post(b" " * 5001))[0] == 413


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
    reflection = ("make_reflective_dataset", reflective(server, adapter_state=1))
    assert program.calls == [reflection, ("propose_new_texts", proposal)]
