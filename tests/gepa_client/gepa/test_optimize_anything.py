"""`gepa.optimize_anything` with a `RemoteAdapter` as its evaluator, in the three ways that GEPA may call it."""

import asyncio

import pytest
from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything

from gepa_client import RemoteAdapter

WORDS = ["red", "green", "blue", "gold"]


@pytest.fixture
def adapter(server):
    async def known(candidate, example, _capture_traces):
        await asyncio.sleep(0.005)
        word = example.data["word"]
        return server.ok(float(word in candidate["system"]), feedback=f"use {word}")

    server.evaluate_one = known
    with RemoteAdapter(server.url) as made:
        yield made


def learn(prompt):
    """The prompt's own text with the first word it lacks."""
    text = prompt.split("```")[1].strip()
    return "```\n" + text + " " + next((word for word in WORDS if word not in text), "") + "\n```"


def optimized(adapter, *, parallel=False, **evaluators):
    result = optimize_anything(
        adapter.seed_candidate,
        dataset=[{"word": word} for word in WORDS],
        config=GEPAConfig(
            engine=EngineConfig(max_metric_calls=60, parallel=parallel, max_workers=8),
            reflection=ReflectionConfig(reflection_lm=learn, reflection_minibatch_size=4),
        ),
        **evaluators,
    )
    return result.candidates, result.val_aggregate_scores


def test_the_run_is_the_same_serially_from_threads_and_in_batches(server, adapter):
    def evaluator(candidate, example):
        batch = adapter.evaluate([example], candidate, capture_traces=True)
        return batch.scores[0], {"Feedback": batch.trajectories[0].result["feedback"]}

    def batch_evaluator(pairs):
        batches = adapter.batch_evaluate([(candidate, [example]) for candidate, example in pairs])
        return [(batch.scores[0], {"Feedback": batch.trajectories[0].result["feedback"]}) for batch in batches]

    serial = optimized(adapter, evaluator=evaluator)
    assert max(serial[1]) > serial[1][0]
    assert server.most_at_once == 1
    assert optimized(adapter, evaluator=evaluator, parallel=True) == serial
    assert server.most_at_once > 1
    assert optimized(adapter, batch_evaluator=batch_evaluator) == serial
    call_ids = [params["_meta"]["call_id"] for params in server.called("evaluate")]
    assert len(set(call_ids)) == len(call_ids)
