"""`finalize`: the run is over, here is what it found."""

from typing import Annotated

from pydantic import Field, FiniteFloat

from protocol.base import WHOLE, Candidate, RequestModel, ResultModel
from protocol.meta import Params


class RunInfo(RequestModel):
    """The run that ended. Scores are means over the validation rows."""

    id: Annotated[str, Field(min_length=1)]
    metric_calls: Annotated[int, Field(ge=0), WHOLE]
    candidates: Annotated[int, Field(ge=1), WHOLE]
    seed_score: FiniteFloat


class FinalizeParams(Params):
    """The best candidate of a finished run and its mean validation score."""

    best_candidate: Candidate
    best_score: FiniteFloat
    run: RunInfo


class FinalizeResult(ResultModel):
    """`message`: a text for the person who ran the optimisation, for instance the file that the program wrote."""

    message: str | None = None
