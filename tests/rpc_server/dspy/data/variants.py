"""DSPy programs and metrics in further forms, some of them wrong."""

import json
import threading

import codes
import dspy

_TOGETHER = threading.Barrier(8)


class Odd(codes.Codes):
    """Waits until eight examples run at once, prints, and has DSPy warn of an unknown input; raises for two words."""

    def forward(self, word):
        if word == "word5":
            raise dspy.LMRateLimitError("too many")
        if word == "word4":
            raise ValueError(f"{word} is too much")
        _TOGETHER.wait(20)
        print("[[ not a frame ]]")
        self.look(word=word, other=1)
        return super().forward(word)


class Codeful(codes.Codes):
    """Has a part whose code DSPy would evolve."""

    def __init__(self):
        super().__init__()
        self.flex = dspy.Flex("word -> code")


class NoPredictors(dspy.Module):
    def forward(self, word):
        return dspy.Prediction(code=word)


class NoModule:
    pass


def plain(example, prediction):
    return prediction.code == example.code


def four(gold, pred, trace, pred_name):
    return 1.0


NUMBER = 7


class Witness(dspy.BaseLM):
    """Answers `x`; asked for an instruction, proposes the number of images that it is shown."""

    def forward(self, prompt=None, messages=None, **_):  # noqa: ARG002  # DSPy's signature
        if "new_instruction" not in messages[0]["content"]:
            return codes._completion("[[ ## code ## ]]\nx\n\n[[ ## completed ## ]]")
        parts = [part for one in messages if isinstance(one["content"], list) for part in one["content"]]
        images = sum(part["type"] == "image_url" for part in parts)
        return codes._completion(json.dumps({"new_instruction": f"saw {images} image"}))


witness = Witness("witness", cache=False)


class Pictures(dspy.Module):
    def __init__(self):
        super().__init__()
        self.answer = dspy.Predict(dspy.Signature("picture: dspy.Image -> code", "Name it."))
        self.answer.lm = witness

    def forward(self, picture):
        return self.answer(picture=picture)


asked = Witness("asked", cache=False)


def whose_model(candidate, reflective_dataset, components_to_update):
    """Propose the name of the model that a proposer's predictors would call."""
    return dict.fromkeys(components_to_update, dspy.settings.lm.model)


def harsher(example, prediction, trace=None, pred_name=None, pred_trace=None):
    """Score each predictor lower than the program."""
    return dspy.Prediction(score=0.25 if pred_name is None else 0.0, feedback="no")
