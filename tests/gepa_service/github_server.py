"""A loopback GitHub: an App's tokens, users who install it, private repositories over smart http, pull requests."""

import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
from aiohttp import BasicAuth, web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gepa_service.repositories.github_app import GitHub, GitHubSettings
from tests.sandbox_runtime.source.repositories import git, http_backend
from tests.support.web_hosts import web_host

APP_ID, SLUG, CLIENT_ID, CLIENT_SECRET, WEBHOOK_SECRET = "Iv23abc", "evolve", "client", "shh", "a secret of webhooks"
INSTALLATION = 42
TOKEN_S = 3600


@dataclass
class Token:
    """A token of an installation: the repositories that it is for, and what it may do there."""

    repositories: list[str]
    permissions: dict[str, str]


@dataclass
class LoopbackGitHub:
    """`root`: bare repositories as OWNER/NAME.git. `codes`: the installations of the user that a code stands for.

    `sizes`: KiB by OWNER/NAME. `installed`: repositories of the installation. `pulls`: pull requests that were opened.
    `redirects`: questions about repositories, once. `claims`: of the App, in each request for a token. `refuses`: the
    status that such a request gets, if it is not 0.
    """

    root: Path
    key: rsa.RSAPrivateKey
    port: int = 0
    codes: dict[str, list[int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    installed: set[str] = field(default_factory=set)
    tokens: dict[str, Token] = field(default_factory=dict)
    users: dict[str, list[int]] = field(default_factory=dict)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    redirects: bool = False
    claims: list[dict[str, Any]] = field(default_factory=list)
    refuses: int = 0
    installation: int = INSTALLATION

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def token_prefix(self) -> str:
        """Of each token, which no server of another test gives."""
        return f"ghs_{self.port}_"

    def url(self, name: str) -> str:
        return f"http://{self.host}/{name}"

    def app(self) -> GitHub:
        """The App's side of it."""
        form = serialization.PrivateFormat.TraditionalOpenSSL
        pem = self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
        return GitHub(
            GitHubSettings(
                app_id=APP_ID,
                slug=SLUG,
                client_id=CLIENT_ID,
                client_secret=CLIENT_SECRET,
                key=pem,
                webhook_secret=WEBHOOK_SECRET,
                state_key=b"state key of at least 32 bytes ..",
                host=self.host,
                api=f"http://{self.host}/api/v3",
                web=f"http://{self.host}",
            )
        )

    def variables(self) -> dict[str, str]:
        """The variables by which a service in containers has the App."""
        described = self.app().settings.model_dump(exclude={"key", "state_key"})
        return {
            "GEPA_SERVICE_GITHUB_APP_TOML": "\n".join(f'{name} = "{value}"' for name, value in described.items()),
            "GEPA_SERVICE_GITHUB_APP_KEY": self.app().settings.key,
        }

    def add(self, name: str, source: Path) -> None:
        """Serve a clone of `source` as OWNER/NAME, a part of the installation."""
        bare = self.root / f"{name}.git"
        bare.parent.mkdir(parents=True, exist_ok=True)
        git(source, "clone", "--quiet", "--bare", str(source), str(bare))
        git(bare, "config", "http.receivepack", "true")
        git(bare, "config", "uploadpack.allowAnySHA1InWant", "true")
        self.installed.add(name)

    def webhook(self, event: dict[str, Any]) -> tuple[bytes, str]:
        """Return the body of a webhook, and its signature."""
        body = json.dumps(event).encode()
        return body, "sha256=" + hmac.new(WEBHOOK_SECRET.encode(), body, hashlib.sha256).hexdigest()

    # --- what it answers ----------------------------------------------------------------------------------------------

    async def access_tokens(self, request: web.Request) -> web.Response:
        bearer = request.headers["Authorization"].removeprefix("Bearer ")
        try:
            self.claims.append(jwt.decode(bearer, self.key.public_key(), algorithms=["RS256"], issuer=APP_ID))
        except jwt.PyJWTError:
            return web.json_response({"message": "A JSON web token could not be decoded"}, status=401)
        if self.refuses:
            return web.json_response({"message": bearer}, status=self.refuses)
        if int(request.match_info["installation"]) != self.installation:
            return web.json_response({"message": "Not Found"}, status=404)
        asked = await request.json()
        names = [full for full in self.installed if full.partition("/")[2] in asked["repositories"]]
        if not names:
            return web.json_response({"message": "There is at least one repository that is not accessible"}, status=422)
        token = f"{self.token_prefix}{len(self.tokens)}"
        self.tokens[token] = Token(names, asked["permissions"])
        until = datetime.fromtimestamp(time.time() + TOKEN_S, UTC)
        return web.json_response({"token": token, "expires_at": until.strftime("%Y-%m-%dT%H:%M:%SZ")}, status=201)

    async def user_token(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked.get("client_secret") != CLIENT_SECRET or asked.get("code") not in self.codes:
            return web.json_response({"error": "bad_verification_code"})
        installations = self.codes.pop(asked["code"])
        token = f"ghu_{len(self.users)}"
        self.users[token] = installations
        return web.json_response({"access_token": token, "token_type": "bearer"})

    async def user_installations(self, request: web.Request) -> web.Response:
        found = self.users.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if found is None:
            return web.json_response({"message": "Bad credentials"}, status=401)
        size, page = (int(request.query[name]) for name in ("per_page", "page"))
        listed = [
            {"id": each, "account": {"login": f"account{each}"}} for each in found[(page - 1) * size : page * size]
        ]
        return web.json_response({"total_count": len(listed), "installations": listed})

    async def repository(self, request: web.Request) -> web.Response:
        if self.redirects and "again" not in request.query:
            raise web.HTTPTemporaryRedirect(f"{request.path}?again")
        name = self._permitted(request, "contents")
        if name is None:
            return web.json_response({"message": "Not Found"}, status=404)
        return web.json_response({"full_name": name, "size": self.sizes.get(name, 12)})

    async def open_pull(self, request: web.Request) -> web.Response:
        name = self._permitted(request, "pull_requests", "write")
        if name is None:
            return web.json_response({"message": "Resource not accessible by integration"}, status=403)
        asked = await request.json()
        if asked["head"] in {each["head"] for each in self.pulls}:
            fault = {"message": f"A pull request already exists for {asked['head']}."}
            return web.json_response({"message": "Validation Failed", "errors": [fault]}, status=422)
        self.pulls.append(asked)
        number = len(self.pulls)
        return web.json_response({"number": number, "html_url": f"http://{self.host}/{name}/pull/{number}"}, status=201)

    def _permitted(self, request: web.Request, permission: str, *levels: str) -> str | None:
        name = f"{request.match_info['owner']}/{request.match_info['name']}"
        token = self.tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if token is None or name not in token.repositories or name not in self.installed:
            return None
        return name if token.permissions.get(permission) in (levels or ("read", "write")) else None

    async def repositories_over_http(self, request: web.Request) -> web.Response:
        name = "/".join(request.path.split("/")[1:3]).removesuffix(".git")
        given = request.headers.get("Authorization", "")
        token = self.tokens.get(BasicAuth.decode(given).password) if given.startswith("Basic ") else None
        writes = "git-receive-pack" in request.path_qs
        level = token.permissions.get("contents") if token is not None and name in token.repositories else None
        if level is None or (writes and level != "write"):
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": 'Basic realm="git"'}, text="private")
        path = f"/{name}.git/" + request.path.split("/", 3)[3]
        return await http_backend(request, self.root, path)


@asynccontextmanager
async def loopback_github(root: Path) -> AsyncIterator[LoopbackGitHub]:
    """Serve it while the block runs."""
    github = LoopbackGitHub(root, rsa.generate_private_key(public_exponent=65537, key_size=2048))
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/api/v3/app/installations/{installation}/access_tokens", github.access_tokens)
    app.router.add_post("/login/oauth/access_token", github.user_token)
    app.router.add_get("/api/v3/user/installations", github.user_installations)
    app.router.add_get("/api/v3/repos/{owner}/{name}", github.repository)
    app.router.add_post("/api/v3/repos/{owner}/{name}/pulls", github.open_pull)
    app.router.add_route("*", "/{path:.*}", github.repositories_over_http)
    async with web_host(app) as host:
        github.port = int(host.rpartition(":")[2])
        yield github
