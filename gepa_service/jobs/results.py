"""The version of a program that a completed job made, read from the record of its run."""

from typing import Any

from gepa_client.certificate.certificate import certify
from gepa_client.errors import ClientError
from gepa_client.journal.store import Store
from gepa_service.model.job import Job
from gepa_service.model.program import Program

PROGRAM_JSON = "program.json"


def program_of(store: Store, job: Job, artifacts: dict[str, Any]) -> Program:
    """Return the version. Its id follows from the job's, so that it is written once if two workers complete the job.

    `artifacts`: JSON files that the program wrote at its end.

    Raises:
        JournalError: the run cannot be read.
    """
    run = store.run(job.id)
    candidates = store.candidates(run.id)
    best = run.best or {}
    index = best.get("index", 0)
    chosen = next((each for each in candidates if each.index == index), None)
    try:
        certificate = certify(store, run).model_dump(mode="json")
    except ClientError:  # the run has no test rows, or was not improved: the report has the reason
        certificate = None
    texts = dict(chosen.texts) if chosen is not None else dict(best.get("texts") or {})
    name = run.program or str(job.settings.get("name") or "program")
    return Program(
        tenant=job.tenant,
        id="program" + job.id.removeprefix("job"),
        line=f"{job.repo_url} {name}",
        job_id=job.id,
        client_id=job.client_id,
        repo_url=job.repo_url,
        texts=texts,
        program_json=_program_json(artifacts),
        branch=texts.get("git_branch"),
        base_commit=run.config.get("ref"),
        score=chosen.score if chosen is not None else None,
        seed_score=candidates[0].score if candidates else None,
        certificate=certificate,
        verdict=None if certificate is None else certificate.get("verdict"),
    )


def _program_json(artifacts: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the program saved of itself: `program.json`, else its only JSON file."""
    found = artifacts.get(PROGRAM_JSON, next(iter(artifacts.values())) if len(artifacts) == 1 else None)
    return found if isinstance(found, dict) else None
