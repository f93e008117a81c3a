"""What the API, the dispatcher and attempts share: stores, how callers are recognized, how repositories are read."""

import asyncio
import contextlib
import functools
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gepa_client.journal.store import Store, open_store
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.auth.oidc import IssuerUnavailable, OidcTokens
from gepa_service.auth.permissions import Principal
from gepa_service.auth.sessions import Sessions
from gepa_service.model.program_version import Repository
from gepa_service.model.work import Work
from gepa_service.records import RecordStore
from gepa_service.repositories.github_app import GitHub
from gepa_service.repositories.repository_access import RepositoryPolicy, allowed_repository, fetch, git_configuration
from gepa_service.secrets.vault import Vault
from sandbox_runtime.source.remote_git import Credentials

MOST_SIGN_INS = 8
"""A part of the threads that answer requests: an issuer that is slow may not hold all."""


@dataclass(frozen=True)
class Revealed:
    """A tenant's secrets for one work: variables by name, and entries of `secret_headers`.

    `unused`: the values of secrets that no process is given.
    """

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: tuple[str, ...] = ()
    unused: tuple[str, ...] = field(default=(), repr=False)

    @property
    def values(self) -> tuple[str, ...]:
        """Every value, which nothing that is kept may hold."""
        return (*self.variables.values(), *self.unused)


@dataclass(frozen=True)
class Service:
    """The parts of a service, made once at the start and never changed. `journals`: the address of the store of runs.

    `recognize`: as `auth.recognize.Recognizer`; it blocks. `public_url`: by which the API is reached from outside.
    `repositories`: which may be connected. `github`: None if the service has no GitHub App. `webhook_key`: from which
    the secret of each webhook is derived. `vault`: None if the service has no master key, and so keeps no secrets.
    `sessions`: of the page; by default they end with this process. `oidc`: accepts tokens of OIDC issuers.
    `sign_ins`: how many threads may ask issuers for people who sign in.
    `job_tokens`, `revealed`: the tokens and a tenant's secrets for attempts.
    """

    records: RecordStore
    journals: str
    recognize: Callable[[str, str | None], Principal | None]
    public_url: str
    job_tokens: JobTokens = field(repr=False)
    repositories: RepositoryPolicy = field(default_factory=RepositoryPolicy)
    github: GitHub | None = None
    webhook_key: bytes = field(default=b"", repr=False)
    vault: Vault | None = None
    sessions: Sessions = field(default_factory=lambda: Sessions(secrets.token_bytes(32)), repr=False)
    oidc: OidcTokens = field(default_factory=lambda: OidcTokens(()))
    sign_ins: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_SIGN_INS))
    revealed: Callable[[str], Revealed] = field(default=lambda _tenant: Revealed(), repr=False)

    @functools.cached_property
    def store(self) -> Store:
        """The store of runs, which its first use opens. Safe to use from several threads. Raises `JournalError`."""
        return open_store(self.journals)

    def close(self) -> None:
        """Close the store of runs, if it was opened."""
        if "store" in vars(self):
            self.store.close()

    @contextlib.contextmanager
    def at_issuers(self) -> Iterator[None]:
        """Ask an issuer within the block, which blocks a thread. Raises `IssuerUnavailable` if too many do so."""
        if not self.sign_ins.acquire(blocking=False):
            raise IssuerUnavailable("too many people sign in at this moment: try again")
        try:
            yield
        finally:
            self.sign_ins.release()

    def git_configuration(self, work: Work) -> str:
        """Return git's configuration for the repository of a work, for a file that its process alone may read. Blocks.

        Raises:
            DestinationRefused: the policy does not allow it. CredentialsFailed: GitHub gives no token.
            RecordsUnavailable: the database cannot be read.
        """
        return git_configuration(allowed_repository(work.repo_url, self.repositories), self._credentials(work))

    def fetch(self, work: Work, folder: Path, commit: str) -> None:
        """Bring a commit of the repository of a work to the git repository in `folder`. Blocks.

        Raises:
            DestinationRefused: the policy does not allow it. SandboxError: it cannot be fetched.
            RecordsUnavailable: the database cannot be read.
        """
        allowed = allowed_repository(work.repo_url, self.repositories)
        asyncio.run(fetch(allowed, commit, folder, self._credentials(work)))

    def _credentials(self, work: Work) -> Credentials | None:
        """Return a token for a repository that the GitHub App connects, else None. Raises `CredentialsFailed`."""
        if work.client_id is None or self.github is None:
            return None
        found = self.records.get(Repository, work.tenant, work.client_id)
        if found is None or found.installation_id is None or found.repo_url != work.repo_url:
            return None
        url = found.repo_url.partition("#")[0]
        return asyncio.run(self.github.credentials(found.installation_id, url))
