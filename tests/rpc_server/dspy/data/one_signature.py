"""A DSPy program with predictors of one signature: in a list, shared, frozen, and copied while it runs."""

import itertools

import dspy
from codes import _completion

SIGNATURE = dspy.Signature("question -> answer", "Answer.")


class Constant(dspy.BaseLM):
    def forward(self, prompt=None, messages=None, **_):  # noqa: ARG002  # DSPy's signature
        return _completion("[[ ## answer ## ]]\nx\n\n[[ ## completed ## ]]")


dspy.configure(lm=Constant("constant", cache=False))


class Several(dspy.Module):
    def __init__(self):
        super().__init__()
        self.first = dspy.Predict(SIGNATURE)
        self.second = dspy.Predict(SIGNATURE)
        self.listed = [dspy.Predict(SIGNATURE)]
        self.shared = self.first
        self.frozen = dspy.ChainOfThought(SIGNATURE)
        self.frozen.predict = dspy.Predict(SIGNATURE)
        self.frozen._compiled = True

    def forward(self, question):
        self.second(question=f"{question} second")
        self.frozen.predict(question=f"{question} frozen")
        self.first.deepcopy()(question=f"{question} copy of first")
        self.shared(question=f"{question} shared with first")
        self.first(question=f"{question} first")
        return self.listed[0](question=f"{question} listed")


verdicts = itertools.count(1)


def judged(example, prediction, trace=None, pred_name=None, pred_trace=None):
    """Score each call differently, as a model may that judges; of the question `why`, each predictor on its own."""
    if example.question != "why":
        number = next(verdicts)
        return dspy.Prediction(score=number / 100, feedback=f"verdict {number}")
    if pred_name is None:
        return 0.25
    return dspy.Prediction(score=0.25 if pred_name == "first" else 0.5, feedback=f"on {pred_name}, {len(trace)} calls")
