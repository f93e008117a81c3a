"""Modules of plain functions: what is given, what is left out, and the forms a score may take."""

import pytest

from protocol.errors import ProgramFailed


async def test_a_module_with_seed_and_run_is_a_program_whose_results_await_a_score(opened):
    async with opened("plain.py") as running:
        info = running.program.info
        assert info.name == "plain"
        assert info.version is None
        assert [part.name for part in info.components] == ["prompt", "style"]
        assert running.program.capabilities == {"steps", "exact_values"}
        candidate = {"prompt": "because", "style": ""}
        result = await running.one({"question": "why? "}, candidate=candidate, capture_traces=True)
        assert result["status"] == "rollout"
        assert result["score"] is None
        assert result["output"] == {"answer": "why? because"}
        assert set(result) == {"status", "score", "output", "seconds"}, "and no trajectory: it records nothing"


async def test_a_program_describes_all_its_capabilities(opened):
    async with opened("full.py") as running:
        info = running.program.info
        assert info.version == "2.5"
        assert info.components[0].description == "what to write"
        own = {"proposals", "scoring", "finalize", "reflective_datasets"}
        assert running.program.capabilities == own | {"steps", "exact_values"}
        assert running.program.limits.max_concurrency == 2
        assert running.program.limits.whole_batches is False


SCORES = {
    "1": (1.0, None),
    "True": (1.0, None),
    "(0.5, 'half')": (0.5, "half"),
    "{'score': 0.25, 'feedback': 'quarter'}": (0.25, "quarter"),
    "__import__('fractions').Fraction(1, 4)": (0.25, None),
    "__import__('decimal').Decimal('0.75')": (0.75, None),
}


async def test_a_score_may_be_a_number_a_number_with_feedback_or_a_mapping(opened):
    async with opened("sums.py", workers=1) as running:
        results = await running.evaluate(*({"output": None, "score": score} for score in SCORES))
    assert [(result["score"], result.get("feedback")) for result in results] == [*SCORES.values()]


async def test_an_exception_in_a_method_is_program_failed_with_stage_and_traceback(opened):
    async with opened("full.py") as running:
        run = {"id": "r", "metric_calls": 7, "candidates": 1, "seed_score": 0.0}
        with pytest.raises(ProgramFailed) as failed:
            await running.program.call("finalize", {"best_candidate": {}, "best_score": -1.0, "run": run})
        assert failed.value.message == "RuntimeError: cannot finish"
        assert failed.value.details["stage"] == "finalize"
        assert "full.py" in failed.value.details["traceback"]
        assert (await running.one({"output": "x"}))["status"] == "ok"


async def test_new_texts_of_no_component_fail_and_one_that_is_no_text_of_unicode_is_refused_by_its_component(
    opened, tmp_path
):
    (tmp_path / "mine.py").write_text(
        "seed_candidate = dict.fromkeys('abc', '')\n"
        "def run(example, candidate): return 1\n"
        "def propose_new_texts(candidate, reflective_dataset, components_to_update):\n"
        "    new = {'a': 'new', 'b': {'text': 'new'}, 'c': 'half ' + chr(0xD83D)}\n"
        "    return new if components_to_update == ['a', 'b', 'c'] else {'b': 'new'}\n"
    )
    params = {"candidate": dict.fromkeys("abc", ""), "reflective_dataset": {}}
    async with opened("mine.py", root=tmp_path) as running:
        with pytest.raises(ProgramFailed, match="returned a text for 'b'"):
            await running.program.call("propose_new_texts", {**params, "components_to_update": ["a"]})
        assert await running.program.call("propose_new_texts", {**params, "components_to_update": list("abc")}) == {
            "texts": {"a": "new"},
            "refused": {"b": "a dict is no text", "c": "character 5 is half of a surrogate pair"},
        }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def run(example, candidate): return 1\ndef propose_new_text(*_): ...", "did you mean `propose_new_texts`"),
        ("def runs(example, candidate): return 1", "no function .*; is `runs` meant to be it"),
    ],
)
async def test_a_misspelt_name_of_a_function_ends_the_start_with_the_name_that_is_meant(
    opened, tmp_path, text, message
):
    (tmp_path / "mine.py").write_text(f"seed_candidate = {{'a': 'b'}}\n{text}\n")
    with pytest.raises(ProgramFailed, match=message):
        async with opened("mine.py", root=tmp_path):
            pass
