"""One step: a mutation of a program, and the run of test examples before and after, in one call."""

import asyncio
import time
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, JsonValue

from gepa_service.api.access import Parts, Reader, Writer
from gepa_service.api.documented import Responses, documented
from gepa_service.api.pages import known_work
from gepa_service.api.request_body import RequestBody
from gepa_service.api.routes.jobs import Row
from gepa_service.api.routes.repositories import Id
from gepa_service.api.routes.rollouts import (
    ExampleRun,
    Texts,
    WorkRequest,
    WorkStatus,
    shown_result,
    shown_status,
    submitted,
)
from gepa_service.api.threads import in_thread
from gepa_service.model.work import ENDED, PROMPT, Work

router = APIRouter(tags=["rollouts"])

POLL_S = 0.2
LONGEST_WAIT_S = 600.0
LONGEST_REQUEST = 100_000
LONGEST_PATCH = 4_000_000
MOST_EXAMPLES = 200


class PromptChange(RequestBody):
    """New texts of components, in place of those of the candidate."""

    kind: Literal["prompt"]
    texts: Texts


class CodeRequest(RequestBody):
    """A change of the code in plain words, which the program's coding agent makes. `location`: where it looks first."""

    kind: Literal["change_request"]
    request: Annotated[str, Field(min_length=1, max_length=LONGEST_REQUEST)]
    location: Annotated[str, Field(min_length=1, max_length=400)] | None = None


class CodePatch(RequestBody):
    """A unified diff that is applied to the code."""

    kind: Literal["patch"]
    diff: Annotated[str, Field(min_length=1, max_length=LONGEST_PATCH)]


class StepRequest(WorkRequest):
    """A step. `examples`: rows that are run with the candidate before and after the mutation.

    `wait_s`: how long the answer may be awaited; then the step continues, and `GET /execute_step/{id}` returns it.
    """

    mutation: Annotated[PromptChange | CodeRequest | CodePatch, Field(discriminator="kind")]
    examples: Annotated[list[Row], Field(max_length=MOST_EXAMPLES)] = Field(default_factory=list)
    wait_s: Annotated[float, Field(ge=0, le=LONGEST_WAIT_S)] = LONGEST_WAIT_S


class ExampleTried(BaseModel):
    """An example before and after the mutation."""

    example: JsonValue
    before: ExampleRun
    after: ExampleRun


class StepView(BaseModel):
    """A step. `made`: whether the mutation was made; else `stage` and `message` state why not.

    `candidate`: the texts after it. `branch`, `commit`, `diff`, `summary`: of a change of code; `bundle`: base64 of a
    git bundle that holds the branch. `program_json`: what the program saved for the candidate. `cost_usd`: what calls
    to models have cost so far.
    """

    step_id: str
    status: WorkStatus
    reason: str | None
    cost_usd: float
    made: bool | None = None
    stage: str | None = None
    message: str | None = None
    candidate: dict[str, str] | None = None
    branch: str | None = None
    commit: str | None = None
    diff: str | None = None
    summary: str | None = None
    bundle: str | None = None
    program_json: dict[str, JsonValue] | None = None
    examples: list[ExampleTried] = Field(default_factory=list)

    @classmethod
    def of(cls, work: Work) -> "StepView":
        """Return what is shown of a record."""
        result = work.result or {}
        tried = [
            ExampleTried(
                example=each["task"],
                before=ExampleRun(**shown_result(each["before"])),
                after=ExampleRun(**shown_result(each["after"])),
            )
            for each in result.get("tried", [])
        ]
        names = set(cls.model_fields) - {"step_id", "status", "reason", "cost_usd", "examples"}
        shown = {name: result[name] for name in names if name in result}
        return cls(
            step_id=work.id,
            status=shown_status(work),
            reason=work.reason,
            cost_usd=work.cost_usd,
            examples=tried,
            **shown,
        )


STILL_RUNNING: Responses = {202: {"model": StepView, "description": "The step continues; poll GET /execute_step/{id}."}}


@router.post("/execute_step", responses={**documented(404), **STILL_RUNNING})
async def execute(asked: StepRequest, caller: Writer, service: Parts, response: Response) -> StepView:
    """Make one mutation, run the examples with it, and return outputs, traces, branch and program."""
    mutation = asked.mutation.model_dump(exclude_none=True)
    flags = [] if mutation["kind"] == PROMPT else ["--allow-mutations"]
    tasks = asked.examples
    work = await in_thread(submitted, service, caller, asked, what="step", tasks=tasks, flags=flags, mutation=mutation)
    until = time.monotonic() + asked.wait_s
    while work.status not in ENDED and time.monotonic() < until:
        await asyncio.sleep(POLL_S)
        work = await in_thread(known_work, caller.records, work.id, "step")
    if work.status not in ENDED:
        response.status_code = 202
    return StepView.of(work)


@router.get("/execute_step/{step_id}", responses=documented(404))
def step(step_id: Id, caller: Reader) -> StepView:
    """Return a step."""
    return StepView.of(known_work(caller.records, step_id, "step"))
