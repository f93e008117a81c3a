"""DSPy programs from dotted paths: their descriptions, the evaluation of examples, the records for reflection."""

import pytest
import pytest_asyncio

from tests.rpc_server.dspy.conftest import made_project, opener

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def codes(tmp_path_factory, dspy_python):
    """`codes.Codes` with the usual settings, which several tests ask."""
    project = made_project(tmp_path_factory.mktemp("codes") / "project")
    async with opener(project, dspy_python)() as running:
        yield running


def row(number, **more):
    return {"word": f"word{number}", "code": "abcd", **more}


async def test_the_seed_is_the_instructions_of_the_named_predictors(codes):
    assert codes.seed == {"look": "Look the word up.", "finish": "Finish the code."}
    assert codes.program.info.name == "Codes"
    of_records = {"refs", "reflective_datasets", "adapter_state"}
    assert codes.program.capabilities == of_records | {"exact_values", "finalize", "untyped_rows"}
    assert codes.program.limits.max_concurrency == 16
    assert not codes.program.limits.whole_batches


async def test_a_candidates_instructions_are_in_the_prompt(codes):
    assert (await codes.one(row(2)))["score"] == 0.0
    known = {"look": "word2 is afb3", "finish": "word2 is afb3"}
    result = await codes.one(row(2), **known)
    assert (result["status"], result["score"]) == ("ok", 1.0)
    assert result["output"] == {"code": "afb3"}
    assert result["feedback"] == "word2 is abcd"
    assert (await codes.one(row(2), look="word2 is afb3"))["score"] == 0.5


async def test_the_usage_of_models_that_report_none_is_unknown(codes):
    assert "usage" not in await codes.one(row(2))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def odd(tmp_path_factory, dspy_python):
    """`variants.Odd`."""
    async with opener(made_project(tmp_path_factory.mktemp("odd") / "project"), dspy_python)("variants.Odd") as running:
        yield running


async def test_eight_examples_run_at_once_and_each_has_its_own_prints_and_warnings(odd):
    results = await odd.evaluate(*[row(2)] * 8)
    assert [result["status"] for result in results] == ["ok"] * 8
    for result in results:
        assert result["log"].startswith("[[ not a frame ]]\n")
        assert result["log"].count("[[ not a frame ]]") == 1
        assert result["log"].count("WARNING dspy.predict.predict: Input contains fields not in signature") == 1


async def test_the_records_are_those_of_dspys_adapter(codes):
    results = await codes.evaluate(row(2), row(3), capture_traces=True)
    answer = await codes.reflect(results, "finish", "look")
    assert list(answer["dataset"]) == ["finish", "look"]
    assert answer["dataset"]["finish"][0] == {
        "Inputs": {"word": "word2", "found": "unknown"},
        "Generated Outputs": {"code": "unknown"},
        "Feedback": "word2 is abcd (finish was given 2 fields)",
    }
    assert [record["Generated Outputs"]["hint"] for record in answer["dataset"]["look"]] == ["unknown"] * 2


async def test_an_answer_that_does_not_parse_is_the_programs_failure_and_keeps_its_trace(opened):
    answers = ["I do not know what word7 is.", '{"hint": "none"}']  # parses not at all; parses in part
    async with opened(dspy={"add_format_failure_as_feedback": True}) as running:
        results = await running.evaluate(row(7), row(12), row(2), capture_traces=True)
        answer = await running.reflect(results, "look")
        unsent = await running.evaluate(row(2), row(7), capture_traces=True, group=None)
        dataset = (await running.reflect(unsent, "look"))["dataset"]
    for result, record, text in zip(results, answer["dataset"]["look"], answers, strict=False):
        assert (result["status"], result["error"]["type"]) == ("program_error", "AdapterParseError")
        assert text in result["error"]["message"]
        assert text in record["Generated Outputs"]
        assert record["Feedback"].startswith("Your output failed to parse. Follow this structure:\n")
    assert answer["dataset"]["look"][2]["Feedback"].startswith("word2 is abcd")
    assert len(dataset["look"]) == 2
    check_steps(*unsent)


def check_steps(right, unparsed):
    """Without a group the steps are in the result."""
    assert "trajectory_ref" not in right
    steps = right["trajectory"]["steps"]
    assert [step["component"] for step in steps] == ["look", "look", "finish"]
    values = {"inputs": {"word": "word2", "found": "unknown"}, "outputs": {"code": "unknown"}}
    assert steps[2] == {"component": "finish", **values}
    failed = unparsed["trajectory"]["steps"][0]
    assert (failed["component"], failed["error"]["type"]) == ("look", "parse_failure")
    assert failed["raw"] == "I do not know what word7 is."


async def test_answers_that_do_not_parse_are_reflected_on_only_if_set_as_in_dspy(codes):
    results = await codes.evaluate(row(7), row(2), capture_traces=True)
    assert all(result["trajectory_ref"] for result in results)
    answer = await codes.reflect(results, "look")
    assert [record["Feedback"][:13] for record in answer["dataset"]["look"]] == ["word2 is abcd"]


async def test_a_programs_errors_are_its_failures_and_a_providers_are_infrastructure_failures(odd):
    crashed, limited = await odd.evaluate(row(4), row(5), capture_traces=True)
    assert (crashed["status"], crashed["error"]["type"]) == ("program_error", "ValueError")
    assert "variants.py" in crashed["error"]["traceback"]
    assert "trajectory_ref" not in crashed
    assert (limited["status"], limited["error"]["type"]) == ("infra_error", "LMRateLimitError")
    shapeless = await odd.one(["word5"])
    assert "must be an object" in shapeless["error"]["message"]


async def test_predictors_of_one_signature_have_records_of_their_own_calls_with_feedback_as_from_dspy_gepa(opened):
    questions = [{"question": str(number)} for number in range(12)]
    own = {"first": {"copy of first", "shared with first", "first"}, "second": {"second"}, "listed[0]": {"listed"}}
    async with opened("one_signature.Several", metric="one_signature.judged") as running:
        results = await running.evaluate(*questions, capture_traces=True)
        dataset = (await running.reflect(results, *own))["dataset"]
        [scored_alike] = await running.evaluate({"question": "why"}, capture_traces=True)
        with_traces = (await running.reflect([scored_alike], "first", "second"))["dataset"]
    asked = {name: {each["Inputs"]["question"].partition(" ")[2] for each in dataset[name]} for name in dataset}
    assert asked == own
    for name in own:  # that of the score that counts
        assert [record["Feedback"] for record in dataset[name]] == [result["feedback"] for result in results]
    assert scored_alike["score"] == 0.25
    feedback = [with_traces[name][0]["Feedback"] for name in ("first", "second")]
    assert feedback == ["on first, 6 calls", "on second, 6 calls"], "the metric gets a trace for feedback alone"


async def test_an_empty_state_begins_anew(codes):
    results = await codes.evaluate(*[row(number) for number in (2, 3, 4, 5)], capture_traces=True)
    await codes.reflect([], adapter_state={})
    first, second = [await codes.reflect(results, "look") for _ in range(2)]
    assert (await codes.reflect([], adapter_state={}))["dataset"] == {}
    again = await codes.reflect(results, "look")
    resumed = await codes.reflect(results, "look", adapter_state=first["adapter_state"])
    assert first != second
    assert (again, resumed) == (first, second)


REVIEW = {"text": "late", "on": "2026-01-31", "notes": "REFERENCE", "id": "007"}
LABELS = {"stars": "3", "urgent": "False", "tags": "['a', \"b\"]", "team": "billing", "due": "", "note": ""}
WRITTEN = repr([*LABELS.values(), "007"])
READ = "[3, False, ['a', 'b'], <Team.BILLING: 'billing'>, None, '', '007']"


TALK = {"text": "", "history": {"messages": [{"question": "word1", "code": "a"}]}, "on": "2026-01-31", "names": ["a"]}
PICTURE = "data:image/png;base64,AAAA"


async def test_labels_of_json_stay_as_written_and_fields_of_texts_and_inputs_have_the_declared_types(opened):
    inputs = ("text", "on", "history", "picture", "names")
    async with opened("typed.Reviews", metric="typed.labels", inputs=inputs) as running:
        written = await running.one(REVIEW | LABELS)
        read = await running.one(REVIEW | LABELS, untyped=True)
        [wrong] = await running.evaluate({"text": "late", "stars": "many"}, untyped=True)
        talks = await running.evaluate(*[{**TALK, "picture": given} for given in (PICTURE, {"url": PICTURE}, None)])
        [no_date] = await running.evaluate({**TALK, "on": "someday"})
    assert (written["feedback"], read["feedback"]) == (WRITTEN, READ)
    # `notes` is a parameter of the program, but not among the `inputs`.
    kinds = "NoneType NoneType date NoneType"
    assert written["output"] == read["output"] == {"on": "datetime.date(2026, 1, 31)", "notes": "none", "kinds": kinds}
    assert wrong["error"]["message"].startswith("the row's field 'stars' is not a int: ")
    images = [result["output"]["kinds"] for result in talks]
    assert images == [f"History {image} date list" for image in ("Image", "Image", "NoneType")]
    assert (no_date["status"], no_date["error"]["type"]) == ("program_error", "invalid_result")
    assert no_date["error"]["message"].startswith("the row's field 'on' is not a date: ")


async def test_dspys_own_proposer_gets_the_records_as_the_objects_that_they_were(opened):
    settings = {"dspy": {"reflection_lm": "variants.witness"}, "metric": "variants.plain"}
    async with opened("variants.Pictures", **settings) as running:
        assert "proposals" in running.program.capabilities
        results = await running.evaluate({"picture": PICTURE, "code": "x"}, capture_traces=True)
        dataset = (await running.reflect(results, "answer"))["dataset"]
        assert isinstance(dataset["answer"][0]["Inputs"]["picture"], str)
        params = {"candidate": running.seed, "reflective_dataset": dataset, "components_to_update": ["answer"]}
        assert await running.program.call("propose_new_texts", params) == {"texts": {"answer": "saw 1 image"}}
