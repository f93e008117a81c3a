"""Open what a worker consists of, by the settings of an operator."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gepa_client.journal.store import Store, open_store
from gepa_service.api.service import Service
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.cli.open_service import opened_service
from gepa_service.cli.operator_settings import OperatorError, OperatorSettings
from gepa_service.jobs.attempt import WorkerParts
from gepa_service.jobs.program_worker import Machine, ProgramWorker
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.jobs.worker import LEASE_S, Worker, worker_name
from gepa_service.model.program import Repository
from gepa_service.model.rollouts import ProgramWork
from gepa_service.secrets.master_key import source_of
from gepa_service.secrets.vault import Vault


@dataclass(frozen=True)
class OpenWorker:
    """`jobs`: runs optimizations. `programs`: runs batches of rollouts and single steps, one at a time."""

    jobs: Worker
    programs: ProgramWorker


@contextlib.contextmanager
def opened_worker(settings: OperatorSettings, environment: Mapping[str, str], at_once: int) -> Iterator[OpenWorker]:
    """Yield a worker that runs `at_once` jobs at the same time; its databases are closed at the end.

    Raises:
        OperatorError: a setting or the master key is wrong, or a database cannot be opened.
    """
    folder = settings.work_folder.absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OperatorError(f"{folder} cannot be made: {error.strerror}") from None
    with opened_service(settings, environment) as service, contextlib.closing(_store(settings)) as journals:
        assert service.vault is not None  # noqa: S101  `opened_service` makes one
        vault, name = service.vault, worker_name()
        parts = WorkerParts(
            name=name,
            records=service.records,
            journals=journals,
            tokens=JobTokens(service.records, [each.value for each in source_of(environment).read()]),
            api=(settings.api_url or settings.public_url).rstrip("/"),
            folder=folder / "jobs",
            lease_s=LEASE_S,
            sandbox=settings.sandbox,
            secrets=lambda tenant: revealed(vault, tenant),
        )
        machine = Machine(
            sandbox=settings.sandbox,
            policy=service.repositories,
            cache=_cache(folder),
            secrets=lambda tenant, names: _named(vault, tenant, names),
            git_credentials=lambda work: _git_credentials(service, work),
        )
        yield OpenWorker(Worker(parts, at_once), ProgramWorker(service.records, machine, name))


def _store(settings: OperatorSettings) -> Store:
    try:
        return open_store(settings.journals)
    except ValueError as error:
        raise OperatorError(str(error)) from None


def _cache(folder: Path) -> Path:
    found = folder / "cache"
    found.mkdir(mode=0o700, exist_ok=True)
    return found


def _named(vault: Vault, tenant: str, names: Sequence[str]) -> Mapping[str, str]:
    """Return those of these secrets of a tenant that there are."""
    found = revealed(vault, tenant).variables if names else {}
    return {name: found[name] for name in names if name in found}


def _git_credentials(service: Service, work: ProgramWork) -> tuple[str, str] | None:
    """Return user and password for a repository that was connected by the GitHub App. Blocks."""
    if work.client_id is None or service.github is None:
        return None
    found = service.records.get(Repository, work.tenant, work.client_id)
    if found is None or found.installation_id is None:
        return None
    return asyncio.run(service.github.credentials(found.installation_id).for_url(found.repo_url.partition("#")[0]))
