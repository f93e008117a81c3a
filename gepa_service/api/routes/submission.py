"""Store a batch or step that is asked for, with what the version that it begins with adds."""

from collections.abc import Mapping
from typing import Any, Literal

from gepa_client.evolution.names import component_texts
from gepa_service.api.access import TenantCaller
from gepa_service.api.app_state import Service
from gepa_service.api.problems import Problem
from gepa_service.api.quotas import refuse_beyond_quotas
from gepa_service.api.routes.jobs import repository_of, settings_or_problem, with_flags
from gepa_service.api.routes.payloads import WorkRequest
from gepa_service.api.routes.programs import known_program
from gepa_service.jobs.settings_of_jobs import SandboxOptions
from gepa_service.model.program_version import Program, branch_of
from gepa_service.model.work import ProgramWork, Work
from gepa_service.records import TenantRecords
from protocol.code import git_branch


def submitted(
    service: Service,
    caller: TenantCaller,
    asked: WorkRequest,
    id_: str,
    what: Literal["rollouts", "step"],
    program: ProgramWork,
) -> Work:
    """Store the work that is asked for, and return it. Blocks. Raises a problem."""
    given, ref = asked.options.model_dump(mode="json", exclude_unset=True), asked.ref
    if asked.version_id is None:
        repo_url, client_id = repository_of(service, caller.records, asked.repo_url, asked.client_id)
    else:
        version = known_program(caller.records, asked.version_id, asked.VERSION)
        repo_url, client_id = _repository(service, caller.records, asked, version)
        program = _of_version(program, version, asked.candidate or {})
        given, ref = _made_with(caller.records, version, given), version.base_commit
    flags = asked.server_args()
    settings = settings_or_problem(service, lambda: with_flags(given, repo_url, ref, flags), must_end=False)
    refuse_beyond_quotas(service, caller.tenant, settings)
    work = Work(
        tenant=caller.records.tenant,
        id=id_,
        what=what,
        repo_url=repo_url,
        ref=ref,
        client_id=client_id,
        settings=settings,
        program=program,
        created_by=caller.actor,
    )
    caller.records.insert(work)
    return work


def _repository(
    service: Service, records: TenantRecords, asked: WorkRequest, version: Program
) -> tuple[str, str | None]:
    """Return the version's repository, and its `client_id`. Raises a problem if the request names another one."""
    if asked.repo_url is not None or asked.client_id is not None:
        named = repository_of(service, records, asked.repo_url, asked.client_id)
        if named[0] != version.repo_url:
            field = "client_id" if asked.client_id is not None else "repo_url"
            detail = f"`{field}` is another repository than that of the version {version.id}: leave it out"
            raise Problem(422, "wrong-version", "Wrong version", detail, field=field)
        return named
    return repository_of(service, records, None if version.client_id else version.repo_url, version.client_id)


def _of_version(program: ProgramWork, version: Program, texts: Mapping[str, str]) -> ProgramWork:
    """Return work that begins with the version. Raises a problem if `texts` or its code cannot be used."""
    own = component_texts(version.texts)
    if unknown := texts.keys() - own.keys():
        detail = f"`candidate`: the program has no component {', '.join(sorted(unknown))}; it has {', '.join(own)}"
        raise Problem(422, "wrong-component", "Unknown component", detail, field="candidate")
    changes: dict[str, Any] = {"candidate": {**own, **program.candidate}}
    if version.commit is not None:
        if not version.bundles:
            detail = "the change of the version's code is too large, or could not be read when it was made"
            raise Problem(409, "no-code", "No code", detail)
        changes |= {"code": git_branch(branch_of(version.id), version.commit), "bundles": version.bundles}
    return program.model_copy(update=changes)


def _made_with(records: TenantRecords, version: Program, given: dict[str, Any]) -> dict[str, Any]:
    """Return settings of sandboxes: those that the version was made with, and over them those that are given."""
    maker = records.get(Work, version.job_id)
    kept = (
        {}
        if maker is None
        else {
            name: value
            for name, value in maker.settings.items()
            if name in SandboxOptions.model_fields and name != "sandboxes"
        }
    )
    flags = [each["server_args"] for each in (kept, given) if each.get("server_args")]
    return {**kept, **given, **({"server_args": " ".join(flags)} if flags else {})}
