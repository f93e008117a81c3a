import asyncio
import hashlib
import random
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from gepa.proposer.reflective_mutation.reflection_lm import StatelessReflectionLM

from gepa_client import ConcurrentReflection, ProgramReflection, RemoteAdapter
from gepa_client.gepa.answer_check import AnswerCheck
from gepa_client.gepa.reflection_prompt import RecordBudget
from gepa_client.journal.entries import COMPLETION
from tests.support.waiting import eventually, until

TEMPLATE = "Improve <curr_param> given <side_info> now."


def model(prompt):
    """Deterministic, with every shape of answer the extractor knows."""
    digest = hashlib.sha256(str(prompt).encode()).hexdigest()[:12]
    return [f"```\n{digest}\n```", f"```text\n{digest}\n```", digest, f"  ```{digest}", f"{digest}``` "][
        int(digest, 16) % 5
    ]


def jobs(seed=0, count=6):
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        candidate = {name: f"text {rng.random()}" for name in ("a", "b", "c")}
        dataset = {
            name: [{"Inputs": {"q": rng.random()}, "Feedback": [1, "two"]} for _ in range(rng.randint(0, 3))]
            for name in ("a", "c")
        }
        made.append((candidate, dataset, rng.sample(["a", "b", "c"], k=rng.randint(1, 3))))
    return made


@pytest.mark.parametrize("template", [None, TEMPLATE, {"a": TEMPLATE}])
@pytest.mark.parametrize("seed", range(3))
def test_it_proposes_exactly_what_gepas_own_strategy_does(template, seed):
    theirs = StatelessReflectionLM(model, template).reflect_many(jobs(seed))
    ours = ConcurrentReflection(model, template).reflect_many(jobs(seed))
    same = ("new_texts", "prompts", "raw_lm_outputs", "metadata")
    found = [[[getattr(proposal, name) for name in same] for proposal, _ in each] for each in (ours, theirs)]
    assert found[0] == found[1]
    assert [list(proposal.new_texts) for proposal, _ in ours] == [list(proposal.new_texts) for proposal, _ in theirs]


def test_requests_run_at_the_same_time_and_answers_stay_in_order():
    together = threading.Barrier(4, timeout=5)
    turn = [threading.Event() for _ in range(4)]

    def meet(prompt):
        together.wait()
        number = int(prompt.split("text number ")[1][0])
        if number < 3:
            turn[number + 1].wait(5)  # the last finishes first
        turn[number].set()
        return f"answer {number}"

    asked = [({"a": f"text number {number}"}, {"a": [{"x": 1}]}, ["a"]) for number in range(4)]
    found = ConcurrentReflection(meet, max_workers=4).reflect_many(asked)
    assert [proposal.new_texts["a"] for proposal, _ in found] == [f"answer {number}" for number in range(4)]


def test_a_failed_job_proposes_nothing_and_is_recorded_while_the_others_run():
    def sometimes(prompt):
        if "two" in prompt:
            raise ConnectionError("no answer")
        return "fine"

    asked = [
        ({"a": text, "b": "b"}, {"a": [{"x": 1}], "b": [{"x": 1}]}, ["b", "a"]) for text in ("one", "two", "three")
    ]
    reflection = ConcurrentReflection(sometimes)
    found = [proposal.new_texts for proposal, _ in reflection.reflect_many(asked)]
    assert found == [{"b": "fine", "a": "fine"}, {}, {"b": "fine", "a": "fine"}]
    [failure] = reflection.failures.take()
    assert str(failure) == "reflection: ConnectionError: no answer"


def test_ctrl_c_does_not_wait_for_a_models_answer():
    asked, answer, prompts = threading.Event(), threading.Event(), []

    def slow(prompt):
        prompts.append(prompt)
        asked.set()
        answer.wait(10)
        return "late"

    def press():
        asked.wait(5)
        time.sleep(0.1)  # the main thread begins to wait: a signal in this moment would be noticed after the answer
        signal.pthread_kill(main.ident, signal.SIGINT)

    main = threading.current_thread()
    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        ConcurrentReflection(slow, max_workers=1).reflect_many(jobs())
    assert not answer.is_set()
    answer.set()
    thread.join(5)
    until(lambda: all(each.name != "reflection" for each in threading.enumerate()))
    assert len(prompts) == 1, "no further one is sent, and one at a time was"


@pytest.mark.parametrize(("cost_usd", "unpriced"), [(None, [COMPLETION]), (0.25, [])])
def test_a_completion_without_a_price_counts_as_unpriced(cost_usd, unpriced):
    class Model:
        def complete(self, _prompt):
            return SimpleNamespace(text="new", cut_off=False, cost_usd=cost_usd, input_tokens=3, output_tokens=1)

    reflection = ConcurrentReflection(Model())
    reflection.reflect_many([({"a": "text a"}, {"a": [{"x": 1}]}, ["a"])])
    assert [*reflection.journal.spending.unpriced] == unpriced


def test_hints_and_the_present_text_are_in_each_prompt_and_within_its_budget():
    prompts = []
    reflection = ConcurrentReflection(
        lambda prompt: prompts.append(prompt) or "new", budget=RecordBudget(prompt_tokens=2000)
    )
    for text, hints in (("text a", ()), ("text a", ("warm " * 500,)), ("<side_info> " + "warm " * 500, ())):
        reflection.hints = lambda hints=hints: hints
        reflection.reflect_many([({"a": text}, {"a": [{"x": "y" * 50_000}]}, ["a"])])
    bare, *longer = prompts
    assert "warm" not in bare
    for prompt in longer:
        assert "warm warm" in prompt
        assert prompt.count("y") < bare.count("y") - 1000


def test_a_template_without_its_placeholders_is_refused():
    with pytest.raises(ValueError, match="side_info"):
        ConcurrentReflection(model, {"a": "only <curr_param>"})


@pytest.fixture
def adapter(server):
    with RemoteAdapter(server.url, max_attempts=2, first_backoff_s=0.001) as made:
        yield made


def test_the_program_is_asked_for_all_jobs_at_once_and_answers_stay_in_order(server, adapter):
    async def last_first(params):
        number = int(params["candidate"]["system"][1:])
        await eventually(lambda: len(server.called("propose_new_texts")) == 4)
        await asyncio.sleep((4 - number) * 0.01)
        return {"texts": {"system" if number < 3 else "style": f"new {number}"}}

    server.replies["propose_new_texts"] = last_first
    asked = [({"system": f"s{number}", "style": ""}, {"system": [{"x": 1}]}, ["system"]) for number in range(4)]
    found = ProgramReflection(adapter).reflect_many(asked)
    assert [proposal.new_texts for proposal, _ in found] == [*({"system": f"new {number}"} for number in range(3)), {}]


def test_a_component_without_a_usable_answer_is_left_out_and_the_others_of_its_job_are_proposed():
    def half(prompt):
        return "```\nnew\n```" if "text b" in prompt else "<think>\nthe text lacks"

    reflection = ConcurrentReflection(half, check=AnswerCheck())
    job = ({"a": "text a", "b": "text b"}, {"a": [{"x": 1}], "b": [{"x": 1}]}, ["a", "b"])
    [proposal] = reflection.propose([job])
    assert proposal.new_texts == {"b": "new"}
    [unusable] = proposal.unusable
    assert (unusable.component, unusable.then, unusable.dropped) == ("a", "monologue", True)


def test_a_model_that_twice_gave_its_text_without_a_block_is_not_asked_twice_again():
    prompts = []
    reflection = ConcurrentReflection(lambda prompt: prompts.append(prompt) or "new", check=AnswerCheck())
    for _ in range(2):
        [proposal] = reflection.propose([({"a": "text a"}, {"a": [{"x": 1}]}, ["a"])])
        assert proposal.new_texts == {"a": "new"}
    assert len(prompts) == 3


def test_an_answer_whose_text_cannot_be_used_is_asked_for_once_more_with_the_reason():
    prompts = []

    def second_time_right(prompt):
        prompts.append(prompt)
        return "```\nhalf \ud83d\n```" if len(prompts) == 1 else "````\nnew\n```\nexample\n```\n````"

    reflection = ConcurrentReflection(second_time_right, check=AnswerCheck())
    [proposal] = reflection.propose([({"a": "text a"}, {"a": [{"x": 1}]}, ["a"])])
    assert proposal.new_texts == {"a": "new\n```\nexample\n```"}
    [unusable] = proposal.unusable
    assert (unusable.reason, unusable.then, unusable.dropped) == ("not text", None, False)
    assert "could not be used: it " in prompts[1]
