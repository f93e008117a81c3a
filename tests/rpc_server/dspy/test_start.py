"""Errors in a DSPy program are reported at the start, in words for its author."""

import asyncio
import sys
from pathlib import Path

import pytest

from protocol.errors import ProgramFailed
from tests.support.rounds import ALL

WRONG = {
    ("codes.Codes", "variants.four"): (
        "variants.four takes (gold, pred, trace, pred_name); a metric takes one of (example, prediction), "
        "(example, prediction, trace), (gold, pred, trace, pred_name, pred_trace)"
    ),
    ("variants.NoPredictors", "codes.metric"): "variants.NoPredictors has no predictors, so no instructions",
}
FURTHER = {
    ("codes.Nothing", "codes.metric"): "codes has no 'Nothing'",
    ("variants.Codeful", "codes.metric"): "'flex' is a dspy.Flex, whose code is not evolved here",
    ("variants.NoModule", "codes.metric"): "variants.NoModule makes a variants.NoModule, not a dspy.Module",
}


async def test_what_is_wrong_with_a_program_or_its_metric_is_named(opened):
    one_by_core = asyncio.Semaphore(2)

    async def complaint(program, metric):
        async with one_by_core:
            with pytest.raises(ProgramFailed) as failed:
                async with opened(program, metric=metric):
                    pass
            return failed.value.message

    wrong = WRONG | FURTHER if ALL else WRONG
    messages = await asyncio.gather(*(complaint(*paths) for paths in wrong))
    for message, expected in zip(messages, wrong.values(), strict=True):
        assert message.startswith(expected)


async def test_an_environment_without_dspy_is_named_with_what_to_do(opened):
    with pytest.raises(ProgramFailed) as failed:
        async with opened(python=Path(sys.executable)):
            pass
    advice = f"{sys.executable} -m pip install 'dspy>=3.0.4'"
    assert failed.value.message == f"DSPy is not installed for {sys.executable}: {advice}"
    assert failed.value.details["interpreter"].startswith(sys.executable)
