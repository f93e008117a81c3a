"""A GEPA adapter with a `batch_evaluate` of its own, which writes down what it was called with."""

from pathlib import Path

from gepa.core.adapter import EvaluationBatch


class Adapter:
    def __init__(self, log=None):
        self.log = log

    def evaluate(self, batch, candidate, capture_traces=False):  # noqa: ARG002 - GEPA's signature
        return self._evaluated("evaluate", [(candidate, batch)])[0]

    def batch_evaluate(self, items, *, capture_traces=True):
        return self._evaluated("batch_evaluate" if capture_traces else "batch_evaluate untraced", items)

    def _evaluated(self, method, items):
        if self.log is not None:
            with Path(self.log).open("a", encoding="utf-8") as file:
                file.write(f"{method} {[len(batch) for _, batch in items]}\n")
        made = []
        for candidate, batch in items:
            scores = [float(word in candidate["rules"]) for word in batch]
            made.append(EvaluationBatch(outputs=list(batch), scores=scores, trajectories=list(batch)))
        return made

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):  # noqa: ARG002 - GEPA's signature
        missing = [word for word, score in zip(eval_batch.trajectories, eval_batch.scores, strict=True) if score < 1]
        return {name: [{"Missing": word} for word in missing] for name in components_to_update}

    def propose_new_texts(self, candidate, reflective_dataset, components_to_update):
        return {
            name: " ".join([candidate[name], *(record["Missing"] for record in reflective_dataset[name][:1])])
            for name in components_to_update
        }
