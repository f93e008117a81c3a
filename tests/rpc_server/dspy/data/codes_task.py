"""The task without DSPy: codes of words, and a proposer that learns some of the codes in its feedback."""

import hashlib
import re


def answer_of(word):
    return hashlib.sha256(word.encode()).hexdigest()[:4]


WORDS = [f"word{number}" for number in range(24)]
ROWS = [{"word": word, "code": answer_of(word)} for word in WORDS]
TRAIN, VAL = ROWS[:18], ROWS[8:]


def reflect(prompt):
    """A proposer over GEPA's own prompt."""
    return "```\n{}\n```".format(learn(prompt.split("```")[1], prompt.split("```")[3], prompt))


def learn(text, feedback, prompt):
    """Learns some of the codes its feedback names, forgets some it had: so that proposals are accepted and rejected."""
    known = dict(re.findall(r"(word\d+) is (\w+)", text))
    luck = int(hashlib.sha256(prompt.encode()).hexdigest(), 16)
    for number, (word, code) in enumerate(sorted(dict(re.findall(r"(word\d+) is (\w+)", feedback)).items())):
        if luck >> number & 1:
            known[word] = code
    if luck % 5 == 0 and known:
        known.pop(sorted(known)[luck % len(known)])
    return "; ".join(f"{word} is {code}" for word, code in sorted(known.items()))


def figures(found, candidates):
    """What is compared of a run's result."""
    return {
        "candidates": candidates,
        "parents": found.parents,
        "scores": found.val_aggregate_scores,
        "subscores": [list(scores.values()) for scores in found.val_subscores],
        "discovered_at": found.discovery_eval_counts,
        "metric_calls": found.total_metric_calls,
    }
