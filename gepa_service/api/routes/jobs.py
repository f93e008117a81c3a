"""Submit jobs within the quotas of their tenant, look at them, and control them."""

import shlex
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, Field, JsonValue, model_validator

from evolverpc_common.exact_values import with_integers_packed
from gepa_client.evolution.candidate_names import component_texts
from gepa_client.journal.entries import RunStatus
from gepa_client.settings.run_settings import GEPA_MINIBATCH, Evolve
from gepa_service.api.access import Parts, Reader, Writer
from gepa_service.api.pagination import Id, Page, Paging, RequestBody, View, known, known_work
from gepa_service.api.problems import Problem, documented
from gepa_service.api.routes.repositories import allowed_or_problem
from gepa_service.jobs import control
from gepa_service.jobs.deletion import delete_work
from gepa_service.jobs.month_spending import has_spent_all, quotas_of
from gepa_service.jobs.settings_of_jobs import Options, SettingRefused, checked_settings, repository_path
from gepa_service.model.program_version import SAVED_PROGRAM, Repository
from gepa_service.model.tenant import Quotas
from gepa_service.model.work import ENDED, OPTIMIZATIONS, Work
from gepa_service.records import TenantRecords, new_id
from gepa_service.repositories.destinations import LONGEST_URL
from gepa_service.service import Service

router = APIRouter(tags=["jobs"])

Action = Callable[[Work], Work]

MOST_ROWS = 20_000
LONGEST_NAME = 400
Row = Annotated[dict[str, JsonValue], AfterValidator(with_integers_packed)]
"""A row, with a marker in place of each large integer, as what reads it after may round one."""

Rows = Annotated[list[Row], Field(min_length=1, max_length=MOST_ROWS)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
RowsPath = Annotated[Name, AfterValidator(repository_path)]
JsonPath = Annotated[Name, AfterValidator(partial(repository_path, suffixes=(".json",)))]
ModuleName = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=r"^[^\s\x00-\x1f-][^\x00-\x1f]*$")]
PositiveCount = Annotated[int, Field(ge=1, le=10**9)]
PositiveAmount = Annotated[float, Field(gt=0, le=1e9)]

SPLITS = {"train": "trainset", "val": "valset", "test": "testset"}
SAME = {"num_threads": "concurrency"}
"""Fields of a request that have another name among the settings."""

OWN = ("reflection_lm", "max_metric_calls", "num_threads", "evolve", "sandboxes", "max_cost_usd")
"""Fields of a request that are settings."""


class Source(RequestBody):
    """A repository: a connected one, or one by its URL, and a commit, branch or tag of it."""

    repo_url: Annotated[str, Field(min_length=1, max_length=LONGEST_URL)] | None = None
    client_id: Id | None = None
    ref: Name | None = None

    @model_validator(mode="after")
    def _one_repository(self) -> Self:
        if self.repo_url is not None and self.client_id is not None:
            raise ValueError("`repo_url` and `client_id` are given: give one of them")
        return self

    def require_repository(self, *others: str) -> None:
        """Raise `ValueError` if no repository is given. `others`: fields that could be given in its place."""
        if self.repo_url is None and self.client_id is None:
            names = ", ".join(f"`{name}`" for name in (*others, "repo_url"))
            raise ValueError(f"{names} or `client_id` is missing: give one of them")


class OptimizeRequest(Source):
    """An optimization.

    `program`, `metric`, `saved_program_json_path`: as of `evolverpc serve`; without `program`, the repository's
    `gepa.toml` names it. The last two are for programs of DSPy.

    Rows are given here, or as a .json, .jsonl or .csv file of the repository. `num_threads`: examples that are
    evaluated at the same time. `options`: every other setting of `evolverpc optimize`.
    """

    program: ModuleName | None = None
    metric: ModuleName | None = None
    saved_program_json_path: JsonPath | None = None
    trainset: Rows | None = None
    trainset_path: RowsPath | None = None
    valset: Rows | None = None
    valset_path: RowsPath | None = None
    testset: Rows | None = None
    testset_path: RowsPath | None = None
    reflection_lm: Name | None = None
    max_metric_calls: PositiveCount | None = None
    num_threads: PositiveCount | None = None
    evolve: Evolve | None = None
    sandboxes: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_cost_usd: PositiveAmount | None = None
    options: Options = Options()

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        self.require_repository()
        for name in SPLITS.values():
            if getattr(self, name) is not None and getattr(self, f"{name}_path") is not None:
                raise ValueError(f"`{name}` and `{name}_path` are given: rows, or a file of the repository")
        for name in OWN:
            setting = SAME.get(name, name)
            if getattr(self, name) is not None and setting in self.options.model_fields_set:
                raise ValueError(f"`{name}` and `options.{setting}` are given: they are the same setting")
        return self

    def settings(self, repo: str) -> dict[str, Any]:
        """Return the settings of the job, as given. Raises `ValueError` for `server_args` that are no flags."""
        found = self.options.model_dump(mode="json", exclude_unset=True)
        for name in OWN:
            if getattr(self, name) is not None:
                found[SAME.get(name, name)] = getattr(self, name)
        flags = serve_flags(self.program, self.metric, self.saved_program_json_path)
        for split, name in SPLITS.items():
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
            elif (path := getattr(self, f"{name}_path")) is not None:
                flags += ["--datasets", f"{split}={path}"]
        return with_flags(found, repo, self.ref, flags)


def serve_flags(program: str | None, metric: str | None, saved: str | None) -> list[str]:
    """Return flags of `evolverpc serve`; a metric and a saved program are those of a program of DSPy."""
    flags = [] if program is None else ["--program", program]
    flags += [] if metric is None and saved is None else ["--kind", "dspy"]
    flags += [] if metric is None else ["--metric", metric]
    return flags + ([] if saved is None else [SAVED_PROGRAM, saved])


def with_flags(given: dict[str, Any], repo: str, ref: str | None, flags: list[str]) -> dict[str, Any]:
    """Return settings with the repository, and with flags of `evolverpc serve` after those that are given."""
    before = shlex.split(given.get("server_args", ""))
    whole = before if before[len(before) - len(flags) :] == flags else [*before, *flags]
    found = given | {"repo": repo} | ({"ref": ref} if ref is not None else {})
    return found | ({"server_args": shlex.join(whole)} if whole else {})


class Submitted(BaseModel):
    """A job that was accepted."""

    job_id: str
    status: RunStatus


class JobView(View):
    """A job. `failure`: of a failed one: its `kind`, a message, and the findings of a failed check.

    `total_iterations`: of an ended job, those that it has made; else `max_iterations`, or how many are expected within
    the budget: by the metric calls of those before, or by those that one makes at least; null if money alone ends it.

    `cost_usd`: the least that it has cost; null if no cost is known. `wanted`: what was last asked for; its attempt
    acts on it. `max_metric_calls`: the budget that `metric_calls` counts towards. `attempts`: how often it was begun or
    continued. `settings`: without secrets.
    """

    job_id: str
    status: RunStatus
    reason: str | None
    wanted: Literal["run", "pause", "cancel"]
    phase: str
    current_iteration: int
    total_iterations: int | None
    metric_calls: int
    max_metric_calls: int | None
    candidates: int
    seed_score: float | None
    best_score: float | None
    best_candidate: dict[str, str] | None
    cost_usd: float | None
    max_cost_usd: float | None
    program_id: str | None
    repo_url: str
    ref: str | None
    client_id: str | None
    created_by: str
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    attempts: int
    failure: dict[str, JsonValue] | None
    settings: dict[str, JsonValue]


def shown_job(job: Work) -> JobView:
    """Return what is shown of a job."""
    limits = {name: job.settings.get(name) for name in ("max_metric_calls", "max_cost_usd")}
    limits |= {"total_iterations": _total_iterations(job), "cost_usd": job.known_cost_usd}
    settings = {name: value for name, value in job.settings.items() if not isinstance(value, list)}
    best = job.progress.best_candidate
    progress = {**job.progress.model_dump(), "best_candidate": None if best is None else component_texts(best)}
    return JobView.of(job, settings=settings, **progress, **limits)


def _total_iterations(job: Work) -> int | None:
    now, calls = job.progress.current_iteration, job.progress.metric_calls
    if job.status in ENDED:
        return now
    most: list[int] = [job.settings["max_iterations"]] if job.settings.get("max_iterations") else []
    if (budget := job.settings.get("max_metric_calls")) is not None:
        each = calls / now if now and calls else 2 * (job.settings.get("reflection_minibatch_size") or GEPA_MINIBATCH)
        most.append(max(now, round(budget / each)))
    return min(most, default=None)


class JobPage(Page[JobView]):
    """Jobs, the newest first."""


class BudgetChange(RequestBody):
    """New limits of a job; at least one of them."""

    max_metric_calls: PositiveCount | None = None
    max_cost_usd: PositiveAmount | None = None
    max_seconds: PositiveAmount | None = None
    max_iterations: PositiveCount | None = None

    @model_validator(mode="after")
    def _any(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError(f"give at least one of {', '.join(type(self).model_fields)}")
        return self


@router.post("/optimize", status_code=202, responses=documented(404))
def optimize(asked: OptimizeRequest, caller: Writer, service: Parts) -> Submitted:
    """Submit an optimization. The program is checked on a few rows first; if that fails, the job does."""
    repo_url, client_id = repository_of(service, caller.records, asked.repo_url, asked.client_id)
    settings = settings_or_problem(service, lambda: asked.settings(repo_url))
    refuse_beyond_quotas(service, caller.tenant, settings)
    job = Work(
        tenant=caller.tenant,
        id=new_id("job"),
        repo_url=repo_url,
        ref=asked.ref,
        client_id=client_id,
        settings=settings,
        created_by=caller.name,
    )
    caller.records.insert(job)
    return Submitted(job_id=job.id, status="pending")


@router.get("/jobs")
def jobs(
    caller: Reader, query: Paging, status: Annotated[list[RunStatus] | None, Query(max_length=6)] = None
) -> JobPage:
    """List jobs, the newest first; `status`: only those with one of these."""
    where = {**OPTIMIZATIONS, **({"status": list(status)} if status else {})}
    return JobPage.read(shown_job, caller.records, Work, query, where, newest_first=True)


@router.get("/job/{job_id}", responses=documented(404))
def job(job_id: Id, caller: Reader) -> JobView:
    """Return a job."""
    return shown_job(known_work(caller.records, job_id, "optimize"))


@router.patch("/job/{job_id}", responses=documented(404))
def change_budget(job_id: Id, asked: BudgetChange, caller: Writer, service: Parts) -> JobView:
    """Change the budget of a job that has not ended."""
    budget = asked.model_dump(exclude_none=True)
    change = partial(control.set_budget, caller.records, service.store, by=caller.name, budget=budget)
    return _controlled(caller.records, job_id, change)


@router.post("/job/{job_id}/cancel", responses=documented(404))
def cancel(job_id: Id, caller: Writer, service: Parts) -> JobView:
    """End a job for good; what it has found is kept."""
    return _controlled(caller.records, job_id, partial(control.cancel, caller.records, service.store, by=caller.name))


@router.delete("/job/{job_id}", status_code=204, responses=documented(404))
def delete_job(job_id: Id, caller: Writer, service: Parts) -> None:
    """Delete a job that has ended, with its run and its log. A version that it made stays."""
    delete_work(service.records, service.store, known_work(caller.records, job_id, "optimize"))


@router.post("/job/{job_id}/pause", responses=documented(404))
def pause(job_id: Id, caller: Writer) -> JobView:
    """Stop a job; nothing is lost, and `resume` continues it."""
    return _controlled(caller.records, job_id, partial(control.pause, caller.records, by=caller.name))


@router.post("/job/{job_id}/resume", responses=documented(404))
def resume(job_id: Id, caller: Writer, service: Parts) -> JobView:
    """Continue a paused job, once there is room in the queue."""

    def resumed(job: Work) -> Work:
        if job.status == "paused":
            refuse_full_queue(service, caller.tenant, quotas_of(service.records, caller.tenant))
        return control.resume(caller.records, job)

    return _controlled(caller.records, job_id, resumed)


def repository_of(
    service: Service, records: TenantRecords, repo_url: str | None, client_id: str | None
) -> tuple[str, str | None]:
    """Return the address of the repository, and its `client_id` if it is connected. Blocks. Raises a problem."""
    if client_id is not None:
        connected = known(records, Repository, client_id, "connected repository", "client_id")
    else:
        assert repo_url is not None  # noqa: S101  the model requires one of them
        allowed = allowed_or_problem(service, repo_url)
        found = records.page(Repository, {"repo_url": allowed.text}, limit=1, newest_first=True)
        if not found:
            return allowed.text, None
        connected = found[0]
    if connected.status == "suspended":
        detail = "the installation of the GitHub App for this repository is suspended: resume it at GitHub"
        raise Problem(409, "suspended", "Repository suspended", detail)
    return connected.repo_url, connected.id


def settings_or_problem(
    service: Service, given: Callable[[], dict[str, Any]], *, must_end: bool = True
) -> dict[str, Any]:
    """Return checked settings. Blocks. Raises a 422 problem that names the field of the request."""
    try:
        return checked_settings(given(), service.repositories.allow_networks, must_end=must_end)
    except SettingRefused as error:
        own = {SAME.get(name, name): name for name in OWN}
        name = error.field.partition(".")[0]
        field = own.get(name, name) if name in (*own, *SPLITS.values(), "repo", "ref") else f"options.{error.field}"
        raise Problem(422, "wrong-setting", "Wrong setting", str(error), field=field) from None
    except ValueError as error:
        detail = f"`server_args` are not flags: {error}"
        raise Problem(422, "wrong-setting", "Wrong setting", detail, field="options.server_args") from None


def _controlled(records: TenantRecords, job_id: str, action: Action) -> JobView:
    return shown_job(controlled(known_work(records, job_id, "optimize"), action))


def controlled(found: Work, action: Action) -> Work:
    """Return the work as an action of `control` has changed it. Raises a problem if its status does not allow that."""
    try:
        return action(found)
    except control.ControlRefused as error:
        raise Problem(409, "wrong-status", "Status does not allow it", str(error)) from None


QUEUE_RETRY_S, MONEY_RETRY_S = 60, 3600


def refuse_beyond_quotas(service: Service, tenant: str, settings: Mapping[str, Any]) -> None:
    """Raise a problem if the tenant may not submit work of these settings now. Blocks."""
    quotas = quotas_of(service.records, tenant)
    asked = int(settings.get("sandboxes") or 0)
    if asked > quotas.sandboxes:
        detail = f"`sandboxes`: the tenant may use {quotas.sandboxes}: ask for fewer"
        raise Problem(422, "quota", "Beyond a quota", detail, field="sandboxes", quota="sandboxes")
    refuse_full_queue(service, tenant, quotas)
    if has_spent_all(service.records, tenant):
        detail = f"the tenant's {quotas.usd_per_month:g} USD of this month are spent: raise the quota, or wait"
        raise _used_up("usd_per_month", detail, MONEY_RETRY_S)


def refuse_full_queue(service: Service, tenant: str, quotas: Quotas) -> None:
    """Raise a problem if no more work of the tenant may wait. Blocks."""
    if service.records.count(Work, tenant, {"status": "pending"}) >= quotas.jobs_queued:
        waiting = f"{quotas.jobs_queued} jobs, batches and steps of the tenant wait already"
        detail = f"{waiting}: cancel one, or send this again later"
        raise _used_up("jobs_queued", detail, QUEUE_RETRY_S)


def _used_up(quota: str, detail: str, retry_s: int) -> Problem:
    headers = {"Retry-After": str(retry_s)}
    return Problem(429, "quota", "A quota is used up", detail, headers=headers, quota=quota)
