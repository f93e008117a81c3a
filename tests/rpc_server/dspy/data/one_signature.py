"""A DSPy program with predictors of one signature, one of which is copied while it runs."""

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

    def forward(self, question):
        self.second(question=question)
        return self.first.deepcopy()(question=question)


def judged(example, prediction, trace=None, pred_name=None, pred_trace=None):
    if pred_name is None:
        return 0.25
    return dspy.Prediction(score=0.25 if pred_name == "first" else 0.5, feedback=f"on {pred_name}, {len(trace)} calls")
