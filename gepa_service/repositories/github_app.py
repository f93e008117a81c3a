"""The service's GitHub App: installations that tenants prove to have, tokens for their repositories, pull requests."""

import json
import re
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import aiohttp
import jwt
from pydantic import BaseModel, ConfigDict, Field

from evolverpc_common.judged_http import ask
from evolverpc_common.network_addresses import is_loopback
from sandbox_runtime.source.remote_git import TOKEN_USER, Credentials, CredentialsFailed, is_for

T = TypeVar("T")

REQUEST_S = 30.0
LARGEST_ANSWER = 8 << 20
HEADERS = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
    "User-Agent": "evolverpc",
    "Content-Type": "application/json",
}
"""Time limit and headers of every request to GitHub's API."""

BACKDATED_S = 60
"""Clocks differ; GitHub advises to backdate by this."""

SIGNED_S = 540
"""Seconds until our own signature expires: GitHub accepts ten minutes, the backdating included."""

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
    """GitHub refused a request or did not answer; the text has the reason, without secrets. `status`: of its answer."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class GitHubSettings(BaseModel):
    """The service's App. `slug`: its name in URLs. `client_id`, `client_secret`: of its user authorization.

    `key`: its private key, PEM. `webhook_secret`: signs what GitHub sends. `web`: where people use GitHub. `host`:
    of its repositories. `api`: `https://HOST/api/v3` for GitHub Enterprise. `state_key`: signs what a tenant's browser
    carries through GitHub.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    app_id: str
    slug: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]
    client_id: str
    client_secret: str = Field(repr=False)
    key: str = Field(repr=False)
    webhook_secret: str = Field(repr=False, min_length=16)
    state_key: bytes = Field(repr=False)
    host: str = "github.com"
    api: str = "https://api.github.com"
    web: str = "https://github.com"


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

    async def credentials(self, installation_id: str, url: str, permissions: Mapping[str, str] = READ) -> Credentials:
        """Return a token of an installation, for the repository at this URL alone, valid for an hour.

        See https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app.

        Raises:
            CredentialsFailed: GitHub gives none.
        """
        named = owner_and_name(url, self.settings.host)
        if named is None or not is_for(self.settings.host, url):
            raise CredentialsFailed(f"{url} is not a repository on {self.settings.host}: OWNER/NAME is expected")
        address = f"{self.settings.api}/app/installations/{int(installation_id)}/access_tokens"
        wanted = {"repositories": [named[1]], "permissions": dict(permissions)}
        try:
            answer = await self._request("POST", address, wanted, token=self._signature())
            token = _field(answer, "token", str)
        except GitHubFailed as error:  # its text may repeat what was sent
            answered = str(error) if error.status is None else f"GitHub answered {error.status}"
            reason = _ADVICE.get(error.status, answered)
            raise CredentialsFailed(
                f"GitHub App {self.settings.app_id} gets no token for {'/'.join(named)}: {reason}"
            ) from None
        return Credentials(url, TOKEN_USER, token)

    def _signature(self) -> str:
        present = int(time.time())
        claims = {"iat": present - BACKDATED_S, "exp": present + SIGNED_S, "iss": self.settings.app_id}
        try:
            return jwt.encode(claims, self.settings.key, algorithm="RS256")
        except (ValueError, TypeError, jwt.PyJWTError):
            app = f"GitHub App {self.settings.app_id}"
            raise CredentialsFailed(
                f"the private key of {app} cannot be used: give the PEM file that GitHub made"
            ) from None

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

    async def account_of_installation(self, code: str, installation_id: str) -> str | None:
        """Return the account of an installation if the user who brought `code` may manage it, else None.

        GitHub's redirect alone proves nothing.

        Raises:
            GitHubFailed: the code is not valid, or GitHub cannot be asked.
        """
        given = {"client_id": self.settings.client_id, "client_secret": self.settings.client_secret, "code": code}
        url = f"{self.settings.web}/login/oauth/access_token"
        answer = await self._request("POST", url, given, headers={"Accept": "application/json"})
        if not isinstance(answer, dict) or not isinstance(token := answer.get("access_token"), str):
            raise GitHubFailed("GitHub does not accept the code of this redirect: begin the installation again")
        for page in range(1, MOST_PAGES + 1):
            url = f"{self.settings.api}/user/installations?per_page={PER_PAGE}&page={page}"
            listed = _field(await self._request("GET", url, None, token=token), "installations", list)
            for each in listed:
                if str(_field(each, "id", int)) == installation_id:
                    return _field(_field(each, "account", dict), "login", str)
            if len(listed) < PER_PAGE:
                return None
        return None

    async def size_mb(self, credentials: Credentials) -> float:
        """Return the size of the repository of a token in MiB, as GitHub reports it. Raises `GitHubFailed`."""
        answer = await self._request("GET", self._repository(credentials), None, token=credentials.password)
        return _field(answer, "size", int) / 1024  # KiB

    async def open_pull_request(self, credentials: Credentials, *, head: str, base: str, title: str, body: str) -> str:
        """Open a pull request in the repository of a token, and return its address. Raises `GitHubFailed`."""
        given = {"title": title, "head": head, "base": base, "body": body}
        address = f"{self._repository(credentials)}/pulls"
        return _field(await self._request("POST", address, given, token=credentials.password), "html_url", str)

    def _repository(self, credentials: Credentials) -> str:
        named = owner_and_name(credentials.url, self.settings.host)
        assert named is not None  # noqa: S101  `credentials` checked it
        return f"{self.settings.api}/repos/{named[0]}/{named[1]}"

    async def _request(
        self,
        method: str,
        url: str,
        body: Any,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        sent = HEADERS | ({"Authorization": f"Bearer {token}"} if token is not None else {}) | dict(headers or {})
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = await ask(
                method, url, allowed=None, headers=sent, data=data, timeout_s=REQUEST_S, most_bytes=LARGEST_ANSWER
            )
            if answer.status not in {200, 201}:
                raise GitHubFailed(f"GitHub answered {answer.status}: {_message(answer.body)}", answer.status)
            return json.loads(answer.body)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise GitHubFailed(f"GitHub cannot be asked: {type(error).__name__}") from None


def owner_and_name(url: str, host: str) -> tuple[str, str] | None:
    """Return owner and name of a repository on GitHub; None for the URL of another host."""
    parts = urllib.parse.urlsplit(url)
    path = urllib.parse.unquote(parts.path).strip("/").removesuffix(".git").split("/")
    if parts.netloc.lower() != host.lower() or len(path) != 2 or not all(map(_NAME.fullmatch, path)):
        return None
    return path[0], path[1]


def _field(answer: Any, name: str, type_: type[T]) -> T:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, type_):
        raise GitHubFailed(f"GitHub's answer has no {name}")
    return found


def _message(answer: bytes) -> str:
    try:
        read = json.loads(answer)
        faults = "; ".join(str(each.get("message", "")) for each in read.get("errors", []) if isinstance(each, dict))
        return f"{read.get('message', '')} {faults}".strip()[:300]
    except (ValueError, AttributeError):
        return "no reason"


_ADVICE: Mapping[int | None, str] = {
    401: "GitHub refuses its signature; check the app's id, its private key and this machine's clock",
    403: "GitHub forbids it; the app needs the permission `Contents: read`, and its installation must not be suspended",
    404: "it is not installed there; install it for this repository, and check the repository's name and the app's id",
    422: "the installation does not include this repository, or not the permission `Contents: read`",
}
