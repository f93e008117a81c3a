"""Calls that outlive their connection (`get_result`, `cancel`), and the end of a run (`finalize`)."""

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from protocol.base import WHOLE, CallId, Candidate, Items, Params, RequestModel, ResultModel
from protocol.evaluation import ExampleResult


class Progress(ResultModel):
    """The progress of a pending call, in examples; `message`: the present step, in a few words, if there is one."""

    done: Annotated[int, Field(ge=0), WHOLE]
    total: Annotated[int, Field(ge=0), WHOLE]
    message: str | None = None


class PartialResult(ResultModel):
    """The result of one finished example, as the call's answer will hold it at `index`."""

    index: Annotated[int, Field(ge=0), WHOLE]
    result: ExampleResult


class PendingCall(ResultModel):
    """A call that was not done within `wait_s`; ask `get_result` with its `call_id`.

    `results`: those of an `evaluate` that are finished, by growing `index`, if they were asked for.
    """

    call_id: CallId
    progress: Progress
    results: Items[PartialResult] | None = None


class Pending(ResultModel):
    """The answer of any call that is still running when its `wait_s` is over."""

    pending: PendingCall


class GetResultParams(Params):
    """Collect the answer of an earlier call; it has the shape, or the error, of that call's own answer.

    `partial` (capability `partial`): a `pending` answer of an `evaluate` has the results that are finished.
    """

    call_id: CallId
    wait_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    partial: bool = False


class CancelParams(Params):
    """Stop a call. Its finished examples keep their results, the others become `cancelled`."""

    call_id: CallId


class CancelResult(ResultModel):
    """`cancelled`: it was running and has been stopped. `finished`: it was already done, its answer stands."""

    status: Literal["cancelled", "finished"]


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
