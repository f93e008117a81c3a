"""`discover` and `list_examples`: the server, its program, its limits, and the rows that it holds."""

from typing import Annotated

from pydantic import Field

from protocol.base import WHOLE, Candidate, Items, JsonValue, Params, ResultModel
from protocol.evaluation import ExampleId

TYPESCRIPT = "typescript"
"""The language that the servers of the npm package state."""


class DiscoverParams(Params):
    """`discover` takes no params of its own."""


class ServerInfo(ResultModel):
    """The process that answers. `instance_id` is new at every start: refs and call ids belong to one instance.

    `language`: that of the program, or the name of the command that runs it, such as `perl`.
    `agent`: the coding agent that carries out change requests, with its model if it is known (capability `mutations`).
    """

    name: str
    version: str
    language: str
    instance_id: Annotated[str, Field(min_length=1)]
    agent: str | None = None


class ComponentInfo(ResultModel):
    """One named component of the candidate.

    `kind` is `text` for prompts and rules, `code` for a git commit, `added` for texts that code mutations added.
    """

    name: Annotated[str, Field(min_length=1)]
    kind: str = "text"
    description: str | None = None


class ProgramInfo(ResultModel):
    """The program under optimisation; one that only scores what others answer (capability `scoring`) has no components.

    `version` is the program's own, null where it declares none. `digest` changes when the program's code or
    configuration does, as far as the server sees them; null where it sees nothing. `files`: the files that `digest`
    covers, each with a digest of its own, so that a client can name those that have changed; as `data NAME` also what
    functions read and may change, which `digest` does not cover. `changed_files`: those of
    `files` that were changed after the program was loaded, so that it runs without the change; null if none is known.
    `deterministic`: true where a candidate has the same output, score and feedback each time it runs on a row, so that
    a client need not run it twice; null where the program does not declare it.
    """

    name: str
    version: Annotated[str, Field(min_length=1)] | None = None
    digest: Annotated[str, Field(min_length=1)] | None = None
    files: dict[str, str] | None = None
    changed_files: Items[str] | None = None
    deterministic: bool | None = None
    components: Items[ComponentInfo]
    seed_candidate: Candidate


class DatasetInfo(ResultModel):
    """A split the server holds: its number of rows, and a digest that changes when any row does."""

    size: Annotated[int, Field(ge=0), WHOLE]
    digest: Annotated[str, Field(min_length=1)]


class Limits(ResultModel):
    """The limits of a server.

    `max_concurrency`: examples running at once; more are queued, and beyond the queue refused as `overloaded`.
    `max_batch_size`: examples in one call. `max_request_bytes`: bytes of one HTTP body.
    `example_timeout_s`: seconds one example may run, queueing excluded; null where the server sets no deadline.
    `max_batch_entries`: requests in one JSON-RPC array (capability `batch`).
    `whole_batches`: true where the program evaluates a batch as one unit, so that a minibatch must be one call.
    `abandon_after_s`, `keep_answers_s`: see capability `idempotency`.
    `max_result_bytes`: bytes of one example's result; an example with a larger one is a `program_error`.
    """

    max_concurrency: Annotated[int, Field(ge=1), WHOLE]
    max_batch_size: Annotated[int, Field(ge=1), WHOLE]
    max_request_bytes: Annotated[int, Field(ge=1), WHOLE]
    example_timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    max_batch_entries: Annotated[int, Field(ge=1), WHOLE] | None = None
    whole_batches: bool = False
    abandon_after_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    keep_answers_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    max_result_bytes: Annotated[int, Field(ge=1), WHOLE] | None = None


class DiscoverResult(ResultModel):
    """Everything a client must know before its first `evaluate`. Unknown capability names are to be ignored."""

    protocol_versions: Annotated[Items[str], Field(min_length=1)]
    server: ServerInfo
    program: ProgramInfo
    datasets: dict[str, DatasetInfo] = {}
    capabilities: Items[str] = []
    limits: Limits


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
