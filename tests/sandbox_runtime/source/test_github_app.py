"""A GitHub App's tokens, made by a stand-in for GitHub that checks signatures as GitHub does."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from sandbox_runtime.source import CredentialsFailed, Source
from sandbox_runtime.source.github_app import EARLY_S, GitHubApp, GitHubAppSettings
from tests.sandbox_runtime.source.repositories import commit, git_host

CLIENT_ID = "Iv23abc"
LONGEST_JWT_S = 600


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: rsa.RSAPrivateKey) -> str:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


@dataclass
class GitHub:
    """`asked`: what was, as (method, path, body). `status`: in place of what it would answer. `lives_s`: a token's."""

    key: rsa.RSAPrivateKey
    api: str = ""
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    lives_s: float = 3600.0
    token: str = "made"

    async def answer(self, request: web.Request) -> web.Response:
        bearer = request.headers["Authorization"].removeprefix("Bearer ")
        try:
            claims = jwt.decode(bearer, self.key.public_key(), algorithms=["RS256"], issuer=CLIENT_ID)
        except jwt.PyJWTError:
            return web.json_response({"message": "A JSON web token could not be decoded"}, status=401)
        self.claims.append(claims)
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.path, body))
        if self.status != 200:
            return web.json_response({"message": bearer}, status=self.status)
        if request.method == "GET":
            return web.json_response({"id": 42})
        until = datetime.fromtimestamp(time.time() + self.lives_s, UTC)
        reply = {"token": f"{self.token}-{len(self.asked)}", "expires_at": until.strftime("%Y-%m-%dT%H:%M:%SZ")}
        return web.json_response(reply, status=201)


@pytest.fixture
async def github(key: rsa.RSAPrivateKey) -> AsyncIterator[GitHub]:
    github = GitHub(key)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", github.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        github.api = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield github
    finally:
        await runner.cleanup()


@pytest.fixture
def app(github: GitHub) -> GitHubAppSettings:
    return GitHubAppSettings(CLIENT_ID, pem(github.key), api=github.api)


async def test_the_token_may_only_read_one_repository(github: GitHub, app: GitHubAppSettings) -> None:
    given = await GitHubApp(app).for_url("https://github.com/owner/name.git")
    assert given == ("x-access-token", "made-2")
    assert github.asked == [
        ("GET", "/repos/owner/name/installation", None),
        (
            "POST",
            "/app/installations/42/access_tokens",
            {"repositories": ["name"], "permissions": {"contents": "read"}},
        ),
    ]


async def test_the_jwt_is_backdated_a_minute_and_expires_within_githubs_limit(
    github: GitHub, app: GitHubAppSettings
) -> None:
    await GitHubApp(app).for_url("https://github.com/owner/name")
    for claims in github.claims:
        assert claims["iat"] <= time.time() - 59
        assert claims["exp"] - claims["iat"] <= LONGEST_JWT_S
        assert set(claims) == {"iat", "exp", "iss"}


async def test_a_token_is_cached_for_its_repository_until_shortly_before_it_expires(
    github: GitHub, app: GitHubAppSettings
) -> None:
    credentials = GitHubApp(replace(app, installation=7))
    first = await credentials.for_url("https://github.com/owner/name")
    assert await credentials.for_url("https://github.com/owner/name.git") == first
    assert await credentials.for_url("https://github.com/owner/other") != first
    assert len(github.asked) == 2
    github.lives_s = EARLY_S - 1
    late = GitHubApp(replace(app, installation=7))
    assert await late.for_url("https://github.com/o/r") != await late.for_url("https://github.com/o/r")


async def test_other_hosts_get_no_token(github: GitHub, app: GitHubAppSettings) -> None:
    for url in ("https://gitlab.com/o/r", "http://github.com/o/r", "ssh://git@github.com/o/r"):
        assert await GitHubApp(app).for_url(url) is None
    assert github.asked == []


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "clock"), (403, "Contents: read"), (404, "install it"), (422, "installation"), (500, "500")],
)
async def test_a_refusal_names_the_app_the_repository_and_the_next_step(
    github: GitHub, app: GitHubAppSettings, status: int, message: str
) -> None:
    github.status = status
    with pytest.raises(CredentialsFailed, match=message) as refused:
        await GitHubApp(app).for_url("https://github.com/owner/name")
    assert CLIENT_ID in str(refused.value)
    assert "owner/name" in str(refused.value)
    assert "eyJ" not in str(refused.value)  # what a signed claim begins with


async def test_a_foreign_key_is_refused_and_an_invalid_one_is_never_sent(
    github: GitHub, app: GitHubAppSettings
) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(CredentialsFailed, match="private key"):
        await GitHubApp(replace(app, key=pem(other))).for_url("https://github.com/owner/name")
    with pytest.raises(CredentialsFailed, match="PEM") as refused:
        await GitHubApp(replace(app, key="hunter2")).for_url("https://github.com/owner/name")
    assert "hunter2" not in str(refused.value)
    assert github.asked == []


async def test_a_password_that_the_user_keeps_for_the_host_is_not_taken_for_ours(
    github: GitHub, app: GitHubAppSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert await GitHubApp(app).for_url("https://github.com/owner/name") is not None


def test_nothing_is_sent_in_the_clear_beyond_this_machine_and_no_key_is_shown(app: GitHubAppSettings) -> None:
    with pytest.raises(ValueError, match="use https"):
        GitHubApp(replace(app, api="http://api.github.com"))
    assert "PRIVATE" not in repr(app)


async def test_git_fetches_with_the_token_of_the_app(github: GitHub, app: GitHubAppSettings, tmp_path: Path) -> None:
    wanted = commit(tmp_path / "served" / "owner" / "name", {"program.py": "print('one')\n"})
    async with git_host(tmp_path / "served", "made-2") as host:
        credentials = GitHubApp(replace(app, host=host.host))
        source = Source(host.url("owner/name"), credentials=credentials, cache=tmp_path / "cache")
        assert (await source.ready(on_progress=print)).commit == wanted
        assert host.authorized >= 2
