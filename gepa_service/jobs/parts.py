"""What `AttemptRecords` uses: stores, tokens, secrets, and how a tenant's repository is read."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gepa_client.journal.store import Store
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.model.program_version import Repository
from gepa_service.model.work import Work
from gepa_service.records import RecordStore
from gepa_service.repositories.github_installations import GitHub
from gepa_service.repositories.repository_access import RepositoryPolicy, allowed_repository, fetch, git_configuration
from sandbox_runtime.source.remote_git import Credentials


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
class GitAccess:
    """`github`: the service's App; None if it has none. Methods block, and raise `RecordsUnavailable`."""

    records: RecordStore
    policy: RepositoryPolicy
    github: GitHub | None

    def configuration(self, work: Work) -> str:
        """Return git's configuration for the repository, for a file that its process alone may read.

        Raises:
            DestinationRefused: the policy does not allow it. CredentialsFailed: GitHub gives no token.
        """
        return git_configuration(allowed_repository(work.repo_url, self.policy), self.credentials(work))

    def fetch(self, work: Work, folder: Path, commit: str) -> None:
        """Bring a commit of the repository to the git repository in `folder`.

        Raises:
            DestinationRefused: the policy does not allow it. SandboxError: it cannot be fetched.
        """
        asyncio.run(fetch(allowed_repository(work.repo_url, self.policy), commit, folder, self.credentials(work)))

    def credentials(self, work: Work) -> Credentials | None:
        """Return a token for a repository that the GitHub App connects, else None. Raises `CredentialsFailed`."""
        if work.client_id is None or self.github is None:
            return None
        found = self.records.get(Repository, work.tenant, work.client_id)
        if found is None or found.installation_id is None or found.repo_url != work.repo_url:
            return None
        url = found.repo_url.partition("#")[0]
        return asyncio.run(self.github.credentials(found.installation_id, url))


@dataclass(frozen=True)
class AttemptParts:
    """What `AttemptRecords` uses: stores, tokens, repositories and secrets.

    `secrets`: returns a tenant's. `git`: how repositories are read.
    """

    records: RecordStore
    journals: Store
    tokens: JobTokens
    git: GitAccess
    secrets: Callable[[str], Revealed] = lambda _tenant: Revealed()
