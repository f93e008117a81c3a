"""A DSPy program that must learn the codes of words, over a scripted model that knows those in its instructions."""

import json
import re
from types import SimpleNamespace

import dspy
from codes_task import answer_of, learn


class ScriptedLM(dspy.BaseLM):
    """Knows the code of a word if the prompt before the question states it; breaks the format for some words."""

    def forward(self, prompt=None, messages=None, **_):  # noqa: ARG002  # DSPy's signature
        context = "\n".join(message["content"] for message in messages[:-1])
        known = dict(re.findall(r"(word\d+) is (\w+)", context))
        fields = ["hint", "code"] if "hint" in messages[0]["content"] else ["code"]
        return _completion(_answer(re.search(r"word\d+", messages[-1]["content"])[0], known, fields))


class ReflectingLM(dspy.BaseLM):
    """Proposes instructions when DSPy's own proposer asks for them: learns as `codes_task.reflect` does."""

    def forward(self, prompt=None, messages=None, **_):  # noqa: ARG002  # DSPy's signature
        asked = messages[-1]["content"]
        if isinstance(asked, list):
            asked = "\n".join(part["text"] for part in asked if part["type"] == "text")
        current, _, examples = asked.partition("[[ ## examples_with_feedback ## ]]")
        new = learn(current, examples, asked)
        return _completion(json.dumps({"new_instruction": new}))


def reflection_lm():
    return ReflectingLM("reflecting", cache=False)


class Proposer:
    """An instruction proposer of the user's own."""

    def __call__(self, candidate, reflective_dataset, components_to_update):
        shown = {name: json.dumps(reflective_dataset[name]) for name in components_to_update}
        return {name: learn(candidate[name], text, candidate[name] + text) for name, text in shown.items()}


def _answer(word, known, fields):
    number = int(word[4:])
    if word not in known and number % 7 == 0:
        return f"I do not know what {word} is."
    if word not in known and number % 11 == 1:
        return '{"hint": "none"}'  # parses, in part
    parts = [f"[[ ## {name} ## ]]\n{known.get(word, 'unknown')}" for name in fields]
    return "\n\n".join([*parts, "[[ ## completed ## ]]"])


def _completion(text):
    message = SimpleNamespace(content=text, tool_calls=None)
    choice = SimpleNamespace(message=message, finish_reason="stop")
    return SimpleNamespace(choices=[choice], usage={}, model="scripted")


dspy.configure(lm=ScriptedLM("scripted", cache=False))


class Look(dspy.Signature):
    """Look the word up."""

    word: str = dspy.InputField()
    hint: str = dspy.OutputField(desc="what comes to mind")
    code: str = dspy.OutputField()


class Codes(dspy.Module):
    """Half of a code from `look`, which runs twice, so that reflection must choose a call; the other from `finish`."""

    def __init__(self):
        super().__init__()
        self.look = dspy.Predict(Look)
        self.finish = dspy.Predict(dspy.Signature("word, found -> code", "Finish the code."))

    def forward(self, word):
        first = self.look(word=word)
        again = self.look(word=f"{word} once more")
        finished = self.finish(word=word, found=again.code)
        return dspy.Prediction(code=first.code[:2] + finished.code[2:])


def metric(example, prediction, trace=None, pred_name=None, pred_trace=None):
    hits = sum(one == other for one, other in zip(answer_of(example.word), prediction.code, strict=False))
    which = "" if pred_trace is None else f" ({pred_name} was given {len(pred_trace[0][1])} fields)"
    return dspy.Prediction(score=hits / 4, feedback=f"{example.word} is {example.code}{which}")
