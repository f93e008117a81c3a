"""`list_examples`: the ids, and where the server allows it the rows, of a split it holds."""

from typing import Annotated

from pydantic import Field

from protocol.base import WHOLE, Items, JsonValue, ResultModel
from protocol.evaluation import ExampleId
from protocol.meta import Params


class ListExamplesParams(Params):
    """One page of a split."""

    split: str
    offset: Annotated[int, Field(ge=0), WHOLE] = 0
    limit: Annotated[int, Field(ge=1, le=10_000), WHOLE] = 100


class ListedExample(ResultModel):
    """A row by its id; `data` is left out where rows do not leave the server."""

    id: ExampleId
    split: str
    data: JsonValue = None


class ListExamplesResult(ResultModel):
    """A page in the split's own order; `total` rows in all."""

    examples: Items[ListedExample]
    total: Annotated[int, Field(ge=0), WHOLE]
