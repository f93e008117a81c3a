"""Run by an environment with DSPy and our packages: `evolverpc.optimize` of rows that are objects of this script.

Prints in its last line what the program and the metric did not get as it was, and what a resume without rows states.
"""

import datetime
import json
import threading

import dspy
from codes import _completion

import evolverpc


class Constant(dspy.BaseLM):
    def forward(self, prompt=None, messages=None, **_):  # noqa: ARG002  # DSPy's signature
        return _completion("[[ ## due ## ]]\n2026-03-01\n\n[[ ## answer ## ]]\nx\n\n[[ ## completed ## ]]")


class Person(dspy.Signature):
    """Answer."""

    picture: dspy.Image = dspy.InputField()
    pages: list[dspy.Image] = dspy.InputField()
    sound: dspy.Audio = dspy.InputField()
    paper: dspy.File = dspy.InputField()
    code: dspy.Code = dspy.InputField()
    history: dspy.History = dspy.InputField()
    tool: dspy.Tool = dspy.InputField()
    on: datetime.date = dspy.InputField()
    due: datetime.date = dspy.OutputField()
    answer: str = dspy.OutputField()


LOCK = threading.Lock()  # cannot be copied, nor be written in any form
IMAGE = dspy.Image(url="data:image/png;base64,iVBORw0KGgo=")
VALUES = {
    "picture": IMAGE,
    "pages": [IMAGE],
    "sound": dspy.Audio(data="aGk=", audio_format="wav"),
    "paper": dspy.File(file_data="data:text/plain;base64,aGk=", filename="a.txt"),
    "code": dspy.Code(code="print()"),
    "history": dspy.History(messages=[{"question": "q", "answer": "a"}]),
    "tool": dspy.Tool(lambda day: day, name="calendar"),
    "on": datetime.date(2026, 3, 1),
}
LABELS = {
    "due": "2026-03-01",
    "big": 2**70,
    "pair": (1, 2),
    "by number": {7: "seven"},
    "lock": LOCK,
    "long": "x" * 9999,
}
TRAIN = [dspy.Example(**VALUES, **LABELS, notes="REFERENCE", number=number).with_inputs(*VALUES) for number in range(6)]
VAL = [dspy.Example(**VALUES, **LABELS, number=number).with_inputs(*VALUES, "number") for number in range(6)]
wrong = []


class Student(dspy.Module):
    def __init__(self):
        super().__init__()
        self.answer = dspy.Predict(Person)

    def forward(self, notes="none", number=None, **inputs):
        if notes != "none" or any(inputs[name] is not value for name, value in VALUES.items()):
            wrong.append(("inputs", notes, repr(inputs)))
        if dspy.settings.get("mine") != "a setting" or dspy.settings.lm.model != "of the context":
            wrong.append(("settings", dspy.settings.lm.model))
        found = self.answer(**inputs)
        return dspy.Prediction(due=found.due, rows="train" if number is None else "val")


def metric(example, prediction, trace=None, pred_name=None, pred_trace=None):
    rows = TRAIN if prediction.rows == "train" else VAL
    if example is not rows[example.number]:
        wrong.append(("example", repr(example)))
    return 0.5


def propose(candidate, dataset, components):
    return {name: candidate[name] + " x" for name in components}


def optimized(calls, **given):
    program = {"student": Student(), "metric": metric}
    return evolverpc.optimize(program, propose=propose, max_metric_calls=calls, check="warn", **given)


with dspy.context(lm=Constant("of the context", cache=False), mine="a setting"):
    result = optimized(14, trainset=TRAIN, valset=VAL)
    again = optimized(20, trainset=TRAIN, valset=VAL, resume=result.run_id)
    try:
        optimized(26, resume=result.run_id)
        refused = ""
    except evolverpc.OptimizeError as error:
        refused = str(error)
print(json.dumps([wrong, result.seed_score, again.metric_calls, refused]))
