"""Imported by both sides of the equality tests: a scripted model for GEPA's DefaultAdapter, an adapter with state."""

import hashlib
import re

from gepa.core.adapter import EvaluationBatch

WORDS = [f"word{number}" for number in range(24)]


def answer_of(word):
    return hashlib.sha256(word.encode()).hexdigest()[:4]


ROWS = [
    {"input": word, "answer": answer_of(word), "additional_context": {"hint": f"{word} is {answer_of(word)}"}}
    for word in WORDS
]
DEFAULT_SEED = {"instructions": "Answer with the code of the word."}


def model(messages):
    """Return the code of the word if the instructions contain it."""
    system, word = messages[0]["content"], messages[1]["content"]
    known = dict(re.findall(r"(word\d+) is (\w+)", system))
    return f"It is {known.get(word, 'unknown')}."


def reflect(prompt):
    """Learn some codes of the feedback and forget some others, so that proposals are accepted and rejected."""
    if not isinstance(prompt, str):
        raise TypeError("no images here")
    text = prompt.split("```")[1]
    known = dict(re.findall(r"(word\d+) is (\w+)", text))
    learned = dict(re.findall(r"(word\d+) is (\w+)", prompt.split("```")[3]))
    luck = int(hashlib.sha256(prompt.encode()).hexdigest(), 16)
    for number, (word, code) in enumerate(sorted(learned.items())):
        if luck >> number & 1:
            known[word] = code
    if luck % 5 == 0 and known:
        known.pop(sorted(known)[luck % len(known)])
    rules = "; ".join(f"{word} is {code}" for word, code in sorted(known.items()))
    return f"```\nAnswer with the code of the word. {rules}\n```"


STATEFUL_SEED = {"low": "start", "high": "start"}


class StatefulAdapter:
    """Grows stricter with every reflective dataset it makes: scores and records depend on its state."""

    def __init__(self, step):
        self.step = step
        self.seen = []

    propose_new_texts = None

    def get_adapter_state(self):
        return {"seen": list(self.seen)}

    def set_adapter_state(self, state):
        self.seen = list(state.get("seen", []))

    def evaluate(self, batch, candidate, capture_traces=False):
        outputs, scores, trajectories = [], [], []
        for row in batch:
            known = candidate["low" if row["input"] < "word15" else "high"]
            hits = sum(letter in known for letter in row["answer"])
            scores.append(round(hits / 4 - self.step * len(self.seen), 6))
            outputs.append({"hits": hits, "strictness": len(self.seen)})
            trajectories.append((row, hits))  # no JSON on purpose: tuples with objects only this process knows
        return EvaluationBatch(
            outputs=outputs,
            scores=scores,
            trajectories=trajectories if capture_traces else None,
            objective_scores=[{"hits": output["hits"] / 4, "strict": 1.0} for output in outputs],
            num_metric_calls=len(batch) + 1,
        )

    def make_reflective_dataset(self, _candidate, eval_batch, components_to_update):
        self.seen.append(round(sum(eval_batch.scores), 6))
        return {
            name: [
                {"Inputs": row["input"], "Feedback": f"{row['input']} is {row['answer']} ({len(self.seen)})"}
                for row, hits in eval_batch.trajectories
                if hits < 4
            ]
            for name in components_to_update
        }


class CountingAdapter(StatefulAdapter):
    """Its state changes with every evaluation, and begins anew when GEPA restores an empty one at a run's start."""

    def evaluate(self, batch, candidate, capture_traces=False):
        self.seen.append(0)
        return super().evaluate(batch, candidate, capture_traces)
