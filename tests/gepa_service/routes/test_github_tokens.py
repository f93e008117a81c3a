"""A GitHub App's tokens, made by a stand-in for GitHub that checks signatures as GitHub does."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gepa_service.repositories.github_installations import GitHub as App
from gepa_service.repositories.github_installations import GitHubSettings
from sandbox_runtime.source import CredentialsFailed

CLIENT_ID = "Iv23abc"
REPOSITORY = "https://github.com/owner/name"
LONGEST_JWT_S = 600


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: rsa.RSAPrivateKey) -> str:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    written: bytes = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return written.decode()


@dataclass
class GitHub:
    """`asked`: what was, as (method, path, body). `status`: in place of what it would answer."""

    key: rsa.RSAPrivateKey
    api: str = ""
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200

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
        return web.json_response({"token": f"made-{len(self.asked)}"}, status=201)


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
def app(github: GitHub) -> App:
    settings = {"app_id": CLIENT_ID, "slug": "s", "client_id": "c", "client_secret": "s", "webhook_secret": "w"}
    return App(GitHubSettings(**settings, key=pem(github.key), state_key=b"k" * 32, api=github.api))


def changed(app: App, **changes: Any) -> App:
    return App(replace(app.settings, **changes))


async def test_the_token_may_only_read_one_repository(github: GitHub, app: App) -> None:
    given = await app.credentials("42", "https://github.com/owner/name.git", {"contents": "read"})
    assert (given.username, given.password) == ("x-access-token", "made-1")
    asked = {"repositories": ["name"], "permissions": {"contents": "read"}}
    assert github.asked == [("POST", "/app/installations/42/access_tokens", asked)]
    [claims] = github.claims
    assert claims["iat"] <= time.time() - 59
    assert claims["exp"] - claims["iat"] <= LONGEST_JWT_S
    assert set(claims) == {"iat", "exp", "iss"}
    assert "made-1" not in repr(given)


async def test_other_hosts_and_paths_get_no_token(github: GitHub, app: App) -> None:
    for url in ("https://gitlab.com/o/r", "http://github.com/o/r", "ssh://git@github.com/o/r", "https://github.com/o"):
        with pytest.raises(CredentialsFailed, match="OWNER/NAME"):
            await app.credentials("42", url)
    assert github.asked == []


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "clock"), (403, "Contents: read"), (404, "install it"), (422, "installation"), (500, "500")],
)
async def test_a_refusal_names_the_app_the_repository_and_the_next_step(
    github: GitHub, app: App, status: int, message: str
) -> None:
    github.status = status
    with pytest.raises(CredentialsFailed, match=message) as refused:
        await app.credentials("42", REPOSITORY)
    assert CLIENT_ID in str(refused.value)
    assert "owner/name" in str(refused.value)
    assert "eyJ" not in str(refused.value)  # what a signed claim begins with


async def test_a_foreign_key_is_refused_and_an_invalid_one_is_never_sent(github: GitHub, app: App) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(CredentialsFailed, match="private key"):
        await changed(app, key=pem(other)).credentials("42", REPOSITORY)
    with pytest.raises(CredentialsFailed, match="PEM") as refused:
        await changed(app, key="hunter2").credentials("42", REPOSITORY)
    assert "hunter2" not in str(refused.value)
    assert github.asked == []


async def test_a_password_that_the_user_keeps_for_the_host_is_not_taken_for_ours(
    github: GitHub, app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert (await app.credentials("42", REPOSITORY)).password == "made-1"


def test_nothing_is_sent_in_the_clear_beyond_this_machine_and_no_key_is_shown(app: App) -> None:
    with pytest.raises(ValueError, match="use https"):
        changed(app, api="http://api.github.com")
    assert "PRIVATE" not in repr(app)
