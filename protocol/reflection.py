"""`make_reflective_dataset` and `propose_new_texts`: what went wrong, and better texts."""

from protocol.base import Candidate, Items, JsonValue, RequestModel, ResultModel
from protocol.evaluation import Example, ExampleResult
from protocol.meta import Params

ReflectiveDataset = dict[str, Items[dict[str, JsonValue]]]
"""Component name -> records, each a JSON object such as `{"Inputs", "Generated Outputs", "Feedback"}` (GEPA's)."""


class EvalBatch(RequestModel):
    """An evaluated minibatch: the examples as sent and the results as received, `results[i]` for `batch[i]`."""

    batch: Items[Example]
    results: Items[ExampleResult]


class MakeReflectiveDatasetParams(Params):
    """Turn traced results into records for the components to update.

    `adapter_state` (capability `adapter_state`): opaque; sent back as the last answer gave it.
    """

    candidate: Candidate
    eval_batch: EvalBatch
    components_to_update: Items[str]
    adapter_state: JsonValue = None


class MakeReflectiveDatasetResult(ResultModel):
    """Records for each component asked for; `adapter_state` where the program keeps any."""

    dataset: ReflectiveDataset
    adapter_state: JsonValue = None


class ProposeNewTextsParams(Params):
    """Ask the program itself for new texts (capability `proposals`)."""

    candidate: Candidate
    reflective_dataset: ReflectiveDataset
    components_to_update: Items[str]


class ProposeNewTextsResult(ResultModel):
    """Component name -> new text, for components that were asked for."""

    texts: dict[str, str]
