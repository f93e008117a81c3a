"""Print the records that `dspy.GEPA` makes of a trace of three predictors by each seed, and the same trace as steps.

Arguments: the seeds.
"""

import json
import random
import sys

import dspy
from dspy.adapters.chat_adapter import ChatAdapter
from dspy.teleprompt.bootstrap_trace import FailedPrediction
from dspy.teleprompt.gepa.gepa_utils import DspyAdapter, EvaluationBatch

COMPONENTS = {"planner": "question -> plan", "solver": "plan -> answer", "checker": "answer, attempt -> verdict"}


class Three(dspy.Module):
    """A predictor for each component."""

    def __init__(self) -> None:
        super().__init__()
        for name, signature in COMPONENTS.items():
            setattr(self, name, dspy.Predict(signature))


def feedback(**found):
    """Give the same feedback to all but the solver."""
    plan = found["predictor_inputs"].get("plan")
    return {"score": 0.5, "feedback": f"solve {plan} better" if plan else "so so"}


def structure(predictor):
    """Return the text that DSPy shows after an answer that does not parse."""
    return "".join(f"{part['role']}: {part['content']}\n" for part in ChatAdapter().format(predictor.signature, [], {}))


student = Three()
predictors = dict(student.named_predictors())
trajectories, results = [], []
for row in range(6):
    calls = [
        ("planner", {"question": f"q{row}"}, {"plan": f"p{row}"}),
        ("solver", {"plan": f"p{row}"}, {"answer": "a"}),
    ]
    calls += [
        ("checker", {"answer": "a", "attempt": str(turn)}, {"verdict": f"v{turn}"}) for turn in range(1 + row % 4)
    ]
    if row == 4:
        calls = calls[:1]
    trace, steps = [], []
    for number, (name, inputs, outputs) in enumerate(calls):
        failed = row == 3 and number == 4
        made = FailedPrediction(completion_text="no verdict", format_reward=0) if failed else dspy.Prediction(**outputs)
        trace.append((predictors[name], inputs, made))
        step = {"component": name, "inputs": inputs, "outputs": None if failed else outputs}
        if failed:
            error = {"type": "parse_failure", "message": "no field"}
            step.update(error=error, raw="no verdict", expected=structure(predictors[name]))
        steps.append(step)
    trajectories.append(
        {
            "example_ind": row,
            "example": dspy.Example(question=f"q{row}").with_inputs("question"),
            "prediction": dspy.Prediction(verdict="v0"),
            "trace": trace,
            "score": 0.5,
        }
    )
    own = {"solver": f"solve p{row} better"}
    results.append(
        {
            "status": "ok",
            "score": 0.5,
            "output": "v0",
            "feedback": "so so",
            "component_feedback": own,
            "seconds": 0,
            "trajectory": {"steps": steps},
        }
    )
batch = EvaluationBatch(outputs=[], scores=[], trajectories=trajectories)
candidate = {name: predictor.signature.instructions for name, predictor in predictors.items()}


def records(seed):
    """Return the records of each component."""
    adapter = DspyAdapter(
        student_module=student,
        metric_fn=None,
        feedback_map=dict.fromkeys(predictors, feedback),
        add_format_failure_as_feedback=True,
        rng=random.Random(seed),
        custom_instruction_proposer=lambda **_: {},
    )
    return adapter.make_reflective_dataset(candidate, batch, list(COMPONENTS))


print(json.dumps({"records": [records(int(seed)) for seed in sys.argv[1:]], "results": results}))
