"""`get_traces`, `make_reflective_dataset` and `propose_new_texts`: what happened, what went wrong, and better texts."""

from typing import Annotated

from pydantic import Field

from protocol.base import Candidate, Items, JsonValue, Params, RequestModel, ResultModel
from protocol.evaluation import Example, ExampleResult, Usage

ReflectiveDataset = dict[str, Items[dict[str, JsonValue]]]
"""Component name -> records, each a JSON object such as `{"Inputs", "Generated Outputs", "Feedback"}` (GEPA's)."""

MAX_IMAGE_BYTES = 5 * 2**20
"""Bytes of one image; what model providers accept in one request is not much more."""


class ImageContent(ResultModel):
    """An image of the records, PNG or any other; a record names it by `{"$image": id}`."""

    media_type: Annotated[str, Field(pattern=r"^image/[a-z0-9.+-]+$", max_length=100)]
    base64: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9+/]+={0,2}$", min_length=4, max_length=(MAX_IMAGE_BYTES + 2) // 3 * 4)
    ]


class EvalBatch(RequestModel):
    """An evaluated minibatch: the examples as sent and the results as received, `results[i]` for `batch[i]`."""

    batch: Items[Example]
    results: Items[ExampleResult]


class GetTracesParams(Params):
    """Fetch what a server keeps for these refs (capability `refs`)."""

    refs: Items[str]


class Trace(ResultModel):
    """What a server keeps for a ref: the trajectory of an example, null if its program recorded none.

    `data`: of the example, if the server holds it and `list_examples` does not show it.
    """

    trajectory: JsonValue = None
    data: JsonValue = None


class GetTracesResult(ResultModel):
    """`traces[i]` belongs to `refs[i]`."""

    traces: Items[Trace]


class MakeReflectiveDatasetParams(Params):
    """Turn traced results into records for the components to update (capability `reflective_datasets`).

    `adapter_state` (capability `adapter_state`): opaque; sent back as the last answer gave it.
    """

    candidate: Candidate
    eval_batch: EvalBatch
    components_to_update: Items[str]
    adapter_state: JsonValue = None


class MakeReflectiveDatasetResult(ResultModel):
    """Records for each component asked for; `adapter_state` where the program keeps any.

    `images` (capability `images`): the images that the records name by `{"$image": id}`, by id, each of them once.
    `usage`: of the models that the program called for the records; left out if it called none.
    """

    dataset: ReflectiveDataset
    adapter_state: JsonValue = None
    images: dict[str, ImageContent] | None = None
    usage: Usage | None = None


class ProposeNewTextsParams(Params):
    """Ask the program itself for new texts (capability `proposals`).

    `images` (capability `images`): those of the records, as `make_reflective_dataset` returned them.
    """

    candidate: Candidate
    reflective_dataset: ReflectiveDataset
    components_to_update: Items[str]
    images: dict[str, ImageContent] | None = None


class ProposeNewTextsResult(ResultModel):
    """Component name -> new text, for components that were asked for.

    `refused`: why what the program gave for a component is no text, by component: it has another type, or half of a
    surrogate pair. `usage`: of the models that the program called for the texts; left out if it called none.
    """

    texts: dict[str, str]
    refused: dict[str, str] | None = None
    usage: Usage | None = None
