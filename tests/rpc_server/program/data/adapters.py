"""GEPA adapters as people write them, some of them badly."""

import os
import threading
import time
from dataclasses import dataclass
from typing import Any


@dataclass
class Batch:
    """Shaped like GEPA's own, so that these need no gepa."""

    outputs: list
    scores: list
    trajectories: Any = None
    objective_scores: Any = None
    num_metric_calls: Any = None


class Step:
    """A trajectory that is no JSON."""

    def __init__(self, text):
        self.text = text


@dataclass
class Output:
    text: str


class Adapter:
    """Scores by length; each row names the fault it has."""

    propose_new_texts = None

    def __init__(self, factor=1.0, measure=len):
        self.factor = factor
        self.measure = measure
        self.overlap = 0
        self.most = 0
        self.lock = threading.Lock()

    def evaluate(self, batch, candidate, capture_traces=False):
        with self.lock:
            self.overlap += 1
            self.most = max(self.most, self.overlap)
        try:
            return self._evaluate(batch, candidate, capture_traces)
        finally:
            with self.lock:
                self.overlap -= 1

    def _evaluate(self, batch, candidate, capture_traces):
        outputs, scores = [], []
        for row in batch:
            do = row.get("do")
            if do == "raise":
                raise ValueError("the whole batch fails")
            if do == "outage":
                raise ConnectionResetError("the provider is gone")
            if do == "sleep":
                time.sleep(row["seconds"])
            if do == "exit":
                os._exit(6)
            if do == "short":
                return Batch(outputs=[], scores=[])
            if do == "nothing":
                return None
            outputs.append(os.getpid() if do == "pid" else self.most if do == "most" else Output(row.get("text", "")))
            scores.append(self.factor * self.measure(row.get("text", "")))
        return Batch(
            outputs=outputs,
            scores=scores,
            trajectories=[Step(candidate["prompt"] + row.get("text", "")) for row in batch] if capture_traces else None,
            num_metric_calls=batch[0].get("calls", 3 * len(batch) + 1),
        )

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):
        records = [
            {"Inputs": step.text, "Score": score, "Output": output.text}
            for step, score, output in zip(eval_batch.trajectories, eval_batch.scores, eval_batch.outputs)
        ]
        return {name: records for name in components_to_update}


class Proposing(Adapter):
    def propose_new_texts(self, candidate, reflective_dataset, components_to_update):
        return {name: candidate[name] + "!" for name in components_to_update}


class Counting(Adapter):
    """Has a state that its scores depend on."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def evaluate(self, batch, candidate, capture_traces=False):
        made = super().evaluate(batch, candidate, capture_traces)
        self.seen += len(batch)
        made.scores = [float(self.seen) for _ in batch]
        return made

    def get_adapter_state(self):
        return {"seen": self.seen}

    def set_adapter_state(self, state):
        self.seen = state["seen"]


class Shapeless:
    pass


def broken(**arguments):
    raise RuntimeError("cannot be made with %s" % sorted(arguments))


def measure(text):
    return 10 * len(text)
