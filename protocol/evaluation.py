"""`evaluate` and `score`: examples in, one result per example out, in the same order."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, FiniteFloat, model_validator

from protocol.base import WHOLE, Candidate, Items, JsonValue, Params, RequestModel, ResultModel

Status = Literal["ok", "program_error", "timeout", "infra_error", "cancelled", "rollout"]
"""The outcome of an example.

`ok`: it has a finite score. `program_error`, `timeout`: the candidate's fault; the optimizer scores it with its
failure score. `infra_error`, `cancelled`: not caused by the program, never a score, may be retried. `rollout`: it
succeeded and waits for another endpoint's `score`.
"""

ExampleId = Annotated[str, Field(min_length=1, max_length=256)]


class Example(RequestModel):
    """One row: `{id, data}` when the optimizer holds the rows, `{id, split}` when the server does.

    `untyped` (capability `untyped_rows`): the values are texts of a file that has no types, such as CSV, so the program
    gives them the types that it declares.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["data"]}, {"required": ["split"]}]})

    id: ExampleId
    data: JsonValue = None
    split: str = ""
    untyped: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = self.model_fields_set
        if {"data", "split"} <= given:
            raise ValueError("give `data` or `split`, not both")
        if not {"data", "split"} & given:
            raise ValueError("give `data` (the row itself) or `split` (a split the server holds)")
        return self


class ExampleError(ResultModel):
    """Why an example failed. `log`: what the program wrote to stdout and stderr while it ran, bounded."""

    type: str
    message: str
    traceback: str | None = None
    log: str | None = None


class ModelUsage(ResultModel):
    """What the calls of one model took. A field left out is unknown; the parts of the input are then zero.

    `input_tokens`: all that was read, `cached_input_tokens` of them from a cache, `cache_write_tokens` of them written
    to one, of which `cache_write_hour_tokens` for an hour rather than for minutes. `output_tokens`: reasoning included.
    """

    calls: Annotated[int, Field(ge=0), WHOLE] | None = None
    input_tokens: Annotated[int, Field(ge=0), WHOLE] | None = None
    output_tokens: Annotated[int, Field(ge=0), WHOLE] | None = None
    cached_input_tokens: Annotated[int, Field(ge=0), WHOLE] | None = None
    cache_write_tokens: Annotated[int, Field(ge=0), WHOLE] | None = None
    cache_write_hour_tokens: Annotated[int, Field(ge=0), WHOLE] | None = None


ModelName = Annotated[str, Field(min_length=1, max_length=256)]


class Usage(ResultModel):
    """What one attempt cost. A field left out is unknown, which is not the same as zero.

    `models`: the calls by the model's name, such as `openai/gpt-5`; an optimizer may price them if there is no
    `cost_usd`.
    """

    cost_usd: Annotated[FiniteFloat, Field(ge=0)] | None = None
    input_tokens: Annotated[int, Field(ge=0), WHOLE] | None = None
    output_tokens: Annotated[int, Field(ge=0), WHOLE] | None = None
    calls: Annotated[int, Field(ge=0), WHOLE] | None = None
    models: dict[ModelName, ModelUsage] | None = None


class HostCalls(ResultModel):
    """The outcomes of an example's calls to one host over the network.

    `succeeded`: calls that the host answered. `failed`: calls that failed transiently: there was no
    connection, it was cut, the host timed out, or it answered with status 408, 425, 429 or 5xx, with an error event,
    or with a body that states one of these. `reason`: how the last of these failed, such as `429`, `connection
    refused` or `cut off`. `retry_after_s`: how long the host asked to wait, in seconds.
    """

    succeeded: Annotated[int, Field(ge=0), WHOLE] = 0
    failed: Annotated[int, Field(ge=0), WHOLE] = 0
    reason: Annotated[str, Field(max_length=256)] | None = None
    retry_after_s: Annotated[FiniteFloat, Field(ge=0)] | None = None


HostName = Annotated[str, Field(min_length=1, max_length=256)]
"""A host name, with its port if that is not the scheme's own, such as `api.openai.com` or `127.0.0.1:8000`."""

PARSE_FAILURE = "parse_failure"
"""The type of a step's error if the model's answer, `raw`, did not have the structure `expected`."""


class Step(ResultModel):
    """One part of an example's run (capability `steps`): what went into it, and what came out.

    A trajectory with steps is an object `{"steps": [Step], ...}`. `component`: the name of the component whose text
    the step used, if it used one; `name`: of a step without a component, such as a tool. `inputs`: by name. `error`:
    why the step failed; of type `parse_failure` if `raw`, the model's answer, did not have the structure that
    `expected` describes. `seconds`: from the start of the step to its end. `steps`: those that ran within it, in the
    order in which they started.
    """

    component: str | None = None
    name: str | None = None
    inputs: JsonValue = None
    outputs: JsonValue = None
    error: ExampleError | None = None
    raw: str | None = None
    expected: str | None = None
    usage: Usage | None = None
    seconds: Annotated[FiniteFloat, Field(ge=0)] | None = None
    steps: "list[Step] | None" = None


class ExampleResult(ResultModel):
    """The outcome of one example; `score` is a finite number exactly when `status` is `ok`, else null.

    `component_feedback` (capability `steps`): feedback on single components, by name, in place of `feedback`. `log`:
    what the program wrote to stdout and stderr while the example ran, bounded; a failed example has it in `error`.
    `metric_calls`: what the example counts for in the optimizer's budget; 1 where it is left out. `trajectory_length`:
    of the trajectory that `trajectory_ref` names: the steps of a list, or the fields of an object. `hosts`: the calls
    that the example made over the network, by host, where the server watches them.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"status": {"const": "ok"}}},
            "then": {"properties": {"score": {"type": "number"}}},
            "else": {"properties": {"score": {"type": "null"}}},
            "not": {
                "properties": {"trajectory": {"not": {"type": "null"}}, "trajectory_ref": {"type": "string"}},
                "required": ["trajectory", "trajectory_ref"],
            },
        }
    )

    status: Status
    score: FiniteFloat | None
    output: JsonValue = None
    feedback: str | None = None
    component_feedback: dict[str, str] | None = None
    log: str | None = None
    trajectory: JsonValue = None
    trajectory_ref: Annotated[str, Field(min_length=1)] | None = None
    trajectory_length: Annotated[int, Field(ge=0), WHOLE] | None = None
    objective_scores: dict[str, FiniteFloat] | None = None
    error: ExampleError | None = None
    usage: Usage | None = None
    metric_calls: Annotated[int, Field(ge=0), WHOLE] | None = None
    hosts: dict[HostName, HostCalls] | None = None
    seconds: Annotated[FiniteFloat, Field(ge=0)]

    @model_validator(mode="after")
    def _score_matches_status(self) -> Self:
        if (self.status == "ok") != (self.score is not None):
            raise ValueError(
                f"status {self.status!r} with score {self.score!r}: a score goes with `ok`, and only with it"
            )
        if self.trajectory is not None and self.trajectory_ref is not None:
            raise ValueError("give `trajectory` or `trajectory_ref`, not both")
        return self


class CandidateItem(RequestModel):
    """One candidate of an `evaluate` for several; `size`: how many consecutive examples of the batch are its own."""

    candidate: Candidate
    size: Annotated[int, Field(ge=0), WHOLE]


class EvaluateParams(Params):
    """Run the program, as this candidate makes it, on each example.

    `items` (capability `batch_evaluate`): several candidates in one call. Their sizes add up to the length of `batch`,
    which holds their examples one after another; `candidate` is the first of them.
    """

    candidate: Candidate
    batch: Items[Example]
    capture_traces: bool = False
    items: Items[CandidateItem] | None = None


class EvaluateResult(ResultModel):
    """`results[i]` belongs to `batch[i]`; the two have the same length."""

    results: Items[ExampleResult]


class ScoreParams(Params):
    """Score outputs that another endpoint made. `results[i]` belongs to `batch[i]`.

    With the capability `score_trajectories` the results hold the trajectories of the runs, inline.
    """

    batch: Items[Example]
    results: Items[ExampleResult]


class ScoreResult(ResultModel):
    """The same results with scores, in the same order; `usage` and `seconds` of those scored are the scoring's own."""

    results: Items[ExampleResult]
