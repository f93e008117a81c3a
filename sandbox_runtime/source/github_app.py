"""Credentials of a GitHub App: for each repository a token that may only read it, renewed before it expires.

See https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app.
"""

import asyncio
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import aiohttp
import jwt
from pydantic import BaseModel, Field, ValidationError

from evolverpc_common.judged_http import environment_proxy
from evolverpc_common.network_addresses import is_loopback
from sandbox_runtime.source.remote_git import TOKEN_USER, CredentialsFailed, is_for

EARLY_S = 300.0
"""A token is renewed if it has less than this left."""

_BACKDATED_S = 60
"""Clocks differ; GitHub advises to backdate by this."""

_JWT_S = 540
"""Seconds until our own signature expires: GitHub accepts ten minutes, the backdating included."""

REQUEST_S = 30.0
HEADERS = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
    "User-Agent": "evolverpc",
}
"""Time limit and headers of every request to GitHub's API."""


class _Installation(BaseModel):
    id: int


class _Token(BaseModel):
    token: str = Field(repr=False)
    expires_at: datetime


_Reply = TypeVar("_Reply", bound=BaseModel)


@dataclass(frozen=True)
class GitHubAppSettings:
    """An app. `app_id`: its number or client id. `key`: its private key, PEM. `installation`: None to find it.

    `host`: of its repositories. `api`: `https://HOST/api/v3` for GitHub Enterprise.
    """

    app_id: str
    key: str = field(repr=False)
    installation: int | None = None
    host: str = "github.com"
    api: str = "https://api.github.com"


READ_CONTENTS = {"contents": "read"}


class GitHubApp:
    """Provides tokens of an app's installation, each for one repository. `permissions`: what a token may do.

    Raises:
        ValueError: `api` is neither https nor on this machine.
    """

    def __init__(self, app: GitHubAppSettings, permissions: Mapping[str, str] = READ_CONTENTS) -> None:
        parts = urllib.parse.urlsplit(app.api)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
            raise ValueError(f"{app.api}: what is sent there is secret: use https")
        self._app = app
        self._permissions = dict(permissions)
        self._tokens: dict[tuple[str, str], _Token] = {}
        self._making: dict[tuple[str, str], asyncio.Lock] = {}

    async def for_url(self, url: str) -> tuple[str, str] | None:
        """Return a token for the repository at this URL, if it is on the app's host. Raises `CredentialsFailed`."""
        if not is_for(self._app.host, url):
            return None
        path = urllib.parse.unquote(urllib.parse.urlsplit(url).path).strip("/").removesuffix(".git").split("/")
        if len(path) != 2 or not all(path):
            raise CredentialsFailed(f"{url} is not a repository on {self._app.host}: OWNER/NAME is expected")
        repository = (path[0], path[1])
        async with self._making.setdefault(repository, asyncio.Lock()):
            token = self._tokens.get(repository)
            if token is None or token.expires_at.timestamp() - time.time() < EARLY_S:
                token = self._tokens[repository] = await self._made(*repository)
        return TOKEN_USER, token.token

    async def _made(self, owner: str, name: str) -> _Token:
        where = f"{urllib.parse.quote(owner, safe='')}/{urllib.parse.quote(name, safe='')}"
        headers = HEADERS | {"Authorization": f"Bearer {self._signed()}"}
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        async with aiohttp.ClientSession(
            headers=headers, timeout=timeout, proxy=environment_proxy(self._app.api)
        ) as session:
            installation = self._app.installation
            if installation is None:
                path = f"/repos/{where}/installation"
                installation = (await self._request(session, "GET", path, None, f"{owner}/{name}", _Installation)).id
            wanted = {"repositories": [name], "permissions": self._permissions}
            path = f"/app/installations/{installation}/access_tokens"
            return await self._request(session, "POST", path, wanted, f"{owner}/{name}", _Token)

    def _signed(self) -> str:
        now = int(time.time())
        claims = {"iat": now - _BACKDATED_S, "exp": now + _JWT_S, "iss": self._app.app_id}
        try:
            return jwt.encode(claims, self._app.key, algorithm="RS256")
        except (ValueError, TypeError, jwt.PyJWTError):
            raise CredentialsFailed(
                f"the private key of GitHub App {self._app.app_id} cannot be used: give the PEM file that GitHub made"
            ) from None

    async def _request(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        body: object,
        repository: str,
        reply: type[_Reply],
    ) -> _Reply:
        app, api = f"GitHub App {self._app.app_id}", self._app.api
        try:
            async with session.request(method, api + path, json=body, allow_redirects=False) as response:
                if response.status in _ADVICE:
                    raise CredentialsFailed(f"{app} may not read {repository}: {_ADVICE[response.status]}")
                if response.status not in {200, 201}:
                    raise CredentialsFailed(f"{app}: {api} answered {response.status} for {repository}")
                return reply.model_validate_json(await response.read())
        except ValidationError as error:  # its own text would show the token
            fields = ", ".join(".".join(map(str, fault["loc"])) or "JSON" for fault in error.errors())
            raise CredentialsFailed(f"{app}: the answer of {api} for {repository} lacks a valid {fields}") from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CredentialsFailed(
                f"{app}: {api} cannot be asked about {repository}: {type(error).__name__}"
            ) from None


_ADVICE = {
    401: "GitHub refuses its signature; check the app's id, its private key and this machine's clock",
    403: "GitHub forbids it; the app needs the permission `Contents: read`, and its installation must not be suspended",
    404: "it is not installed there; install it for this repository, and check the repository's name and the app's id",
    422: "the installation does not include this repository, or not the permission `Contents: read`",
}
