"""A DSPy program over a `dspy.LM`, that is by litellm, whose answers DSPy caches."""

import os
import tempfile

import dspy

dspy.configure_cache(disk_cache_dir=tempfile.mkdtemp(), enable_disk_cache=False)
dspy.configure(lm=dspy.LM("openai/gpt-4o-mini", api_base=os.environ["PROVIDER_URL"], api_key="x"))
dspy.configure(track_usage="TRACK_USAGE" in os.environ)


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


class Silent(Ask):
    """Asks no model."""

    def forward(self, question):  # noqa: ARG002  # the signature's
        return dspy.Prediction(answer="so")


def judged_by_a_model(example, prediction, trace=None):
    """Ask a model about the answer, and accept it if that fails."""
    Hiding()(question=prediction.answer)
    return 1.0


def metric(example, prediction, trace=None):
    return float(prediction.answer == "so")


def judged(example, prediction, trace=None):
    """Score by the tokens of the program, with feedback on those of a judge and calls of two threads beside."""

    def tokens(answer):
        return sum(used["total_tokens"] for used in answer.get_lm_usage().values())

    judge = dspy.Predict("verdict -> answer")(verdict=prediction.answer)
    dspy.Parallel(num_threads=2, disable_progress_bar=True)([(Ask(), {"question": each}) for each in ("who?", "how?")])
    return dspy.Prediction(score=tokens(prediction), feedback=f"the judge took {tokens(judge)} tokens")
