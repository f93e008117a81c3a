"""A DSPy program over a `dspy.LM`, that is by litellm, whose answers DSPy caches."""

import os
import sys
import tempfile

import dspy

URL = os.environ["PROVIDER_URL"]
dspy.configure_cache(disk_cache_dir=tempfile.mkdtemp(), enable_disk_cache=False)
dspy.configure(lm=dspy.LM("openai/gpt-4o-mini", api_base=URL, api_key="x"))
refusing = dspy.LM("openai/gpt-4o-mini", api_base=URL.replace("/v1", "/refused/v1"), api_key="x")


class Ask(dspy.Module):
    """Answers by itself where the model refuses."""

    def __init__(self):
        super().__init__()
        self.ask = dspy.Predict(dspy.Signature("question -> answer", "Answer."))

    def forward(self, question):
        if "litellm" not in sys.modules:
            return dspy.Prediction(answer="litellm is imported by the examples, at the same time in several threads")
        try:
            return self.ask(question=question, lm=refusing if question == "refused?" else None)
        except Exception:  # noqa: BLE001  # that is what it shows
            return dspy.Prediction(answer="so")


def metric(example, prediction, trace=None):
    return float(prediction.answer == "so")
