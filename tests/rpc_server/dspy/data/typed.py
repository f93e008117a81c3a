"""A DSPy program whose signature declares types, and a metric that states labels and counts those that are no text."""

import datetime
import enum

import dspy


class Team(enum.Enum):
    BILLING = "billing"
    OTHER = "other"


class Review(dspy.Signature):
    """Read the review."""

    text: str = dspy.InputField()
    on: datetime.date = dspy.InputField()
    notes: str = dspy.InputField()
    history: dspy.History = dspy.InputField()
    picture: dspy.Image | None = dspy.InputField()
    names: list[str] = dspy.InputField()
    stars: int = dspy.OutputField()
    urgent: bool = dspy.OutputField()
    tags: list[str] = dspy.OutputField()
    team: Team = dspy.OutputField()
    due: datetime.date = dspy.OutputField()
    note: str | None = dspy.OutputField()


class Reviews(dspy.Module):
    """Returns the date and the notes that it is called with, and the types of its inputs."""

    def __init__(self):
        super().__init__()
        self.read = dspy.Predict(Review)

    def forward(self, text, on=None, history=None, picture=None, names=None, notes="none"):  # noqa: ARG002
        assert history is None or history.messages == [{"question": "word1", "code": "a"}]
        kinds = " ".join(type(value).__name__ for value in (history, picture, on, names))
        return dspy.Prediction(on=repr(on), notes=notes, kinds=kinds)


def labels(example, prediction, trace=None):
    names = [name for name in ("stars", "urgent", "tags", "team", "due", "note", "id") if name in example]
    found = [example[name] for name in names]
    return dspy.Prediction(score=sum(not isinstance(each, str) for each in found), feedback=repr(found))
