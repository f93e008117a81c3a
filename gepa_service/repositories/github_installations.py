"""The service's GitHub App: installations that tenants prove to have, tokens for their repositories, pull requests."""

import re
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
import jwt
from pydantic import BaseModel, ValidationError

from evolverpc_common.network_addresses import is_loopback
from sandbox_runtime.source.github_app import HEADERS, REQUEST_S, GitHubApp, GitHubAppSettings
from sandbox_runtime.source.remote_git import CredentialsFailed

M = TypeVar("M", bound=BaseModel)

STATE_S = 600
"""Seconds within which an installation that was begun here must end."""

STATE, CONFIRMATION = "github-state", "github-confirmation"
MOST_PAGES = 50
PER_PAGE = 100
READ = {"contents": "read", "metadata": "read"}
DELIVER = {"contents": "write", "pull_requests": "write"}
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]+")
"""An owner or a repository: `..` would lead to another path of the API."""


class GitHubFailed(Exception):
    """GitHub refused a request or did not answer; the text has the reason, without secrets."""


@dataclass(frozen=True)
class GitHubSettings:
    """The service's App. `slug`: its name in URLs. `client_id`, `client_secret`: of its user authorization.

    `key`: its private key, PEM. `webhook_secret`: signs what GitHub sends. `web`: where people use GitHub. `host`,
    `api`: as of `GitHubAppSettings`. `state_key`: signs what a tenant's browser carries through GitHub.
    """

    app_id: str
    slug: str
    client_id: str
    client_secret: str = field(repr=False)
    key: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    state_key: bytes = field(repr=False)
    host: str = "github.com"
    api: str = "https://api.github.com"
    web: str = "https://github.com"


class PullRequest(BaseModel):
    """A pull request as GitHub answers."""

    number: int
    html_url: str


class _Repository(BaseModel):
    size: int
    """KiB."""


class _Account(BaseModel):
    login: str


class UserInstallation(BaseModel):
    """An installation that a user of GitHub may manage."""

    id: int
    account: _Account


class _Installations(BaseModel):
    installations: list[UserInstallation]


class _UserToken(BaseModel):
    access_token: str


@dataclass(frozen=True)
class GitHub:
    """The App's requests to GitHub.

    Raises:
        ValueError: `api` or `web` is neither https nor on this machine.
    """

    settings: GitHubSettings

    def __post_init__(self) -> None:
        for url in (self.settings.api, self.settings.web):
            parts = urllib.parse.urlsplit(url)
            if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
                raise ValueError(f"{url}: what is sent there is secret: use https")

    def credentials(self, installation_id: str, permissions: Mapping[str, str] = READ) -> GitHubApp:
        """Return the provider of tokens of one installation, each for one repository."""
        app = GitHubAppSettings(
            self.settings.app_id,
            self.settings.key,
            installation=int(installation_id),
            host=self.settings.host,
            api=self.settings.api,
        )
        return GitHubApp(app, permissions)

    def install_url(self, tenant: str, nonce: str) -> str:
        """Return the page on which a user installs the App; GitHub sends the signed state back."""
        state = self.signed(STATE, {"tenant": tenant, "nonce": nonce})
        return f"{self.settings.web}/apps/{self.settings.slug}/installations/new?state={state}"

    def signed(self, audience: str, claims: Mapping[str, Any]) -> str:
        """Return claims that only this service can make, valid for `STATE_S` seconds."""
        present = int(time.time())
        whole = {**claims, "aud": audience, "iat": present, "exp": present + STATE_S}
        return jwt.encode(whole, self.settings.state_key, algorithm="HS256")

    def claims(self, audience: str, token: str) -> dict[str, Any] | None:
        """Return the claims of `signed`; None if they are forged, for something else or too old."""
        try:
            found: dict[str, Any] = jwt.decode(
                token,
                self.settings.state_key,
                algorithms=["HS256"],
                audience=audience,
                options={"require": ["aud", "exp", "iat"]},
            )
        except (jwt.InvalidTokenError, ValueError):
            return None
        return found

    async def installation_of_user(self, code: str, installation_id: str) -> UserInstallation | None:
        """Return the installation if the user who brought `code` may manage it. GitHub's redirect alone proves nothing.

        Raises:
            GitHubFailed: the code is not valid, or GitHub cannot be asked.
        """
        given = {"client_id": self.settings.client_id, "client_secret": self.settings.client_secret, "code": code}
        url = f"{self.settings.web}/login/oauth/access_token"
        answer = await self._request("POST", url, given, headers={"Accept": "application/json"})
        try:
            token = _UserToken.model_validate(answer).access_token
        except ValidationError:
            raise GitHubFailed(
                "GitHub does not accept the code of this redirect: begin the installation again"
            ) from None
        for page in range(1, MOST_PAGES + 1):
            url = f"{self.settings.api}/user/installations?per_page={PER_PAGE}&page={page}"
            listed = _read(_Installations, await self._request("GET", url, None, token=token)).installations
            found = next((each for each in listed if str(each.id) == installation_id), None)
            if found is not None or len(listed) < PER_PAGE:
                return found
        return None

    async def size_mb(self, installation_id: str, owner: str, name: str) -> float:
        """Return the size of a repository in MiB, as GitHub reports it. Raises `GitHubFailed`, `CredentialsFailed`."""
        token = await self._token(installation_id, owner, name, READ)
        answer = await self._request("GET", self._repository(owner, name), None, token=token)
        return _read(_Repository, answer).size / 1024

    async def open_pull_request(
        self, installation_id: str, owner: str, name: str, *, head: str, base: str, title: str, body: str
    ) -> PullRequest:
        """Open a pull request. Raises `GitHubFailed`, `CredentialsFailed`."""
        token = await self._token(installation_id, owner, name, DELIVER)
        given = {"title": title, "head": head, "base": base, "body": body}
        return _read(
            PullRequest, await self._request("POST", f"{self._repository(owner, name)}/pulls", given, token=token)
        )

    async def _token(self, installation_id: str, owner: str, name: str, permissions: Mapping[str, str]) -> str:
        credentials = self.credentials(installation_id, permissions)
        pair = await credentials.for_url(f"{_scheme(self.settings.host)}://{self.settings.host}/{owner}/{name}")
        if pair is None:
            raise CredentialsFailed(f"there is no token for {owner}/{name}")
        return pair[1]

    def _repository(self, owner: str, name: str) -> str:
        where = f"{urllib.parse.quote(owner, safe='')}/{urllib.parse.quote(name, safe='')}"
        return f"{self.settings.api}/repos/{where}"

    async def _request(
        self,
        method: str,
        url: str,
        body: Any,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        sent = HEADERS | ({"Authorization": f"Bearer {token}"} if token is not None else {})
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        try:
            async with (
                aiohttp.ClientSession(headers=sent | dict(headers or {}), timeout=timeout) as session,
                session.request(method, url, json=body, allow_redirects=False) as response,
            ):
                if response.status not in {200, 201}:
                    raise GitHubFailed(f"GitHub answered {response.status}: {await _message(response)}")
                return await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise GitHubFailed(f"GitHub cannot be asked: {type(error).__name__}") from None


def owner_and_name(url: str, host: str) -> tuple[str, str] | None:
    """Return owner and name of a repository on GitHub; None for the URL of another host."""
    parts = urllib.parse.urlsplit(url)
    path = urllib.parse.unquote(parts.path).strip("/").removesuffix(".git").split("/")
    if parts.netloc.lower() != host.lower() or len(path) != 2 or not all(map(_NAME.fullmatch, path)):
        return None
    return path[0], path[1]


def _scheme(host: str) -> str:
    return "http" if is_loopback(host.rpartition(":")[0] or host) else "https"


def _read(type_: type[M], answer: Any) -> M:
    try:
        return type_.model_validate(answer)
    except ValidationError:
        raise GitHubFailed(f"GitHub's answer is no {type_.__name__.strip('_').lower()}") from None


async def _message(response: aiohttp.ClientResponse) -> str:
    try:
        read = await response.json(content_type=None)
        faults = "; ".join(str(each.get("message", "")) for each in read.get("errors", []) if isinstance(each, dict))
        return f"{read.get('message', '')} {faults}".strip()[:300]
    except (ValueError, AttributeError, aiohttp.ClientError):
        return "no reason"
