"""A DSPy program over a `dspy.LM`, that is by litellm, whose answers DSPy caches."""

import os
import tempfile

import dspy

dspy.configure_cache(disk_cache_dir=tempfile.mkdtemp(), enable_disk_cache=False)
dspy.configure(lm=dspy.LM("openai/gpt-4o-mini", api_base=os.environ["PROVIDER_URL"], api_key="x"))


class Ask(dspy.Module):
    def __init__(self):
        super().__init__()
        self.ask = dspy.Predict(dspy.Signature("question -> answer", "Answer."))

    def forward(self, question):
        return self.ask(question=question)


class Hiding(Ask):
    """Answers nothing where the model does not."""

    def forward(self, question):
        try:
            return super().forward(question)
        except Exception:  # noqa: BLE001  # that is what it shows
            return dspy.Prediction(answer="so")


def metric(example, prediction, trace=None):
    return float(prediction.answer == "so")
