"""A GEPA adapter that shows its reflection model images, one of them in two records."""

import base64

from gepa.core.adapter import EvaluationBatch
from gepa.image import Image

PNG = base64.b64encode(b"\x89PNG a drawing").decode()


class Adapter:
    propose_new_texts = None

    def evaluate(self, batch, candidate, capture_traces=False):  # noqa: ARG002 - GEPA's signature
        scores = [float(len(candidate["rules"]) > 20)] * len(batch)
        return EvaluationBatch(outputs=list(batch), scores=scores, trajectories=list(batch))

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):  # noqa: ARG002 - GEPA's signature
        image = Image(base64_data=PNG, media_type="image/png")
        records = [{"Row": row, "Drawing": {"shown": [image]}} for row in eval_batch.trajectories]
        return dict.fromkeys(components_to_update, records)
