"""DSPy programs and metrics in further forms, some of them wrong."""

import threading
import time

import codes
import dspy

_TOGETHER = threading.Barrier(8)


class Together(codes.Codes):
    """Waits until eight examples run at once."""

    def forward(self, word):
        _TOGETHER.wait(20)
        print("[[ not a frame ]]")
        return super().forward(word)


class Slow(codes.Codes):
    def forward(self, word, pause=0):
        time.sleep(pause)
        return super().forward(word)


class Anything(codes.Codes):
    """Takes whatever it is given; says what that was."""

    def forward(self, **inputs):
        return dspy.Prediction(code=" ".join(sorted(inputs)), thing=object() if "found" in inputs else None)


class Crashing(codes.Codes):
    def forward(self, word):
        if word == "word5":
            raise dspy.LMRateLimitError("too many")
        raise ValueError(f"{word} is too much")


class NoPredictors(dspy.Module):
    def forward(self, word):
        return dspy.Prediction(code=word)


class NeedsArgument(codes.Codes):
    def __init__(self, size):  # noqa: ARG002  # it is never given
        super().__init__()


class NoModule:
    pass


def plain(example, prediction):
    return prediction.code == example.code


def silent(example, prediction, trace=None):
    return dspy.Prediction(score=len(trace), feedback=None)


def scoreless(example, prediction):
    return dspy.Prediction(feedback="well done")


def four(gold, pred, trace, pred_name):
    return 1.0


NUMBER = 7
