"""Proposals with a journal: answers are replayed, and no model is asked twice."""

import threading
from dataclasses import replace

import pytest

from gepa_client import ConcurrentReflection, Interrupted
from gepa_client.gepa.answer_check import AnswerCheck
from gepa_client.gepa.litellm_model import Completion
from gepa_client.journal.entries import SEARCH
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import recording, replaying


class Model:
    """Answers with a price, and remembers what it was asked."""

    name = "openai/x"

    def __init__(self):
        self.asked = []
        self.lock = threading.Lock()

    def complete(self, prompt):
        with self.lock:
            self.asked.append(prompt)
        return Completion(f"```\n{prompt.split('<')[1]}\n```", 0.25, 10, 5)


TEMPLATE = "<<curr_param>< <side_info>"
JOBS = [({"a": text}, {"a": [{"x": 1}]}, ["a"]) for text in ("one", "two", "three")]


def reflected(journal, model):
    reflection = ConcurrentReflection(model, TEMPLATE, journal=journal)
    return [(proposal.new_texts, proposal.raw_lm_outputs) for proposal, _ in reflection.reflect_many(JOBS)]


def test_a_models_answers_are_replayed_without_it(store):
    with recording(store) as journal:
        live = reflected(journal, Model())
    assert [texts for texts, _ in live] == [{"a": "one"}, {"a": "two"}, {"a": "three"}]
    silent = Model()
    assert reflected(replaying(store), silent) == live
    with recording(store) as journal:
        assert reflected(journal, silent) == live
        assert ConcurrentReflection(silent, journal=journal).total_cost == 0.75
    assert silent.asked == []
    assert [(made.kind, made.endpoint) for made in store.attempts(RUN.id, SEARCH)] == [("completion", "openai/x")] * 3


class CutOff(Model):
    """Answers no first prompt in full; `stops`: the second ones are interrupted."""

    def __init__(self, *, stops=False):
        super().__init__()
        self.stops = stops

    def complete(self, prompt):
        again = "answered this once already" in prompt
        if again and self.stops:
            raise Interrupted("paused", "the process ends")
        return replace(super().complete(prompt), text="```\nnew\n```", cut_off=not again)


def checked(journal, model):
    reflection = ConcurrentReflection(model, TEMPLATE, journal=journal, check=AnswerCheck())
    found = reflection.propose(JOBS[:2])
    return [(one.new_texts, one.unusable) for one in found], reflection.total_cost


def test_a_process_that_ends_between_two_answers_is_continued_with_the_second_one_and_pays_for_none_twice(store):
    with recording(store) as journal, pytest.raises(Interrupted):
        checked(journal, CutOff(stops=True))
    model = CutOff()
    with recording(store) as journal:
        live = checked(journal, model)
    assert [texts for texts, _ in live[0]] == [{"a": "new"}, {"a": "new"}]
    assert [(found.reason, found.then) for _, [found] in live[0]] == [("truncated", None)] * 2
    assert ["answered this once already" in prompt for prompt in model.asked] == [True, True]
    assert live[1] == 4 * 0.25
    assert checked(replaying(store), Model())[0] == live[0]
    about = [entry.about for entry in store.entries(RUN.id, SEARCH)]
    assert about[2:] == [f"reflect on 'a', as the first answer was truncated, job {at}" for at in range(2)]
