"""A GEPA adapter that does what the checks of `batch_evaluate` and `images` ask of the conformance program."""

from gepa.core.adapter import EvaluationBatch
from gepa.image import Image


class Adapter:
    def evaluate(self, batch, candidate, capture_traces=False):  # noqa: ARG002 - GEPA's signature
        outputs = [dict(candidate) if data.get("echo_candidate") else data.get("output") for data in batch]
        scores = [data.get("score", 1.0) for data in batch]
        return EvaluationBatch(outputs=outputs, scores=scores, trajectories=list(zip(batch, outputs, strict=True)))

    def batch_evaluate(self, items):
        return [self.evaluate(batch, candidate) for candidate, batch in items]

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):  # noqa: ARG002 - GEPA's signature
        records = []
        for data, output in eval_batch.trajectories:
            image = data.get("image")
            shown = (
                {} if image is None else {"Image": Image(base64_data=image["base64"], media_type=image["media_type"])}
            )
            records.append({"Inputs": data, "Generated Outputs": output, **shown})
        return dict.fromkeys(components_to_update, records)

    def propose_new_texts(self, candidate, reflective_dataset, components_to_update):
        assert all(
            isinstance(record["Image"], Image) for name in components_to_update for record in reflective_dataset[name]
        )
        return {name: candidate[name] + "!" for name in components_to_update}
