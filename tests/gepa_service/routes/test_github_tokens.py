"""A GitHub App's tokens, made by a stand-in for GitHub that checks signatures as GitHub does."""

import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from gepa_service.repositories.github_app import GitHub as App
from sandbox_runtime.source import CredentialsFailed
from tests.gepa_service.github_server import APP_ID, LoopbackGitHub, Token

REPOSITORY = "https://github.com/owner/name"
LONGEST_JWT_S = 600


@pytest.fixture
def app(github: LoopbackGitHub) -> App:
    github.installed |= {"owner/name", "owner/other"}
    return changed(github.app(), host="github.com")


def changed(app: App, **changes: Any) -> App:
    return App(app.settings.model_copy(update=changes))


async def test_the_token_may_only_read_one_repository(github: LoopbackGitHub, app: App) -> None:
    given = await app.credentials("42", "https://github.com/owner/name.git", {"contents": "read"})
    assert (given.username, given.password) == ("x-access-token", f"{github.token_prefix}0")
    assert github.tokens == {f"{github.token_prefix}0": Token(["owner/name"], {"contents": "read"})}
    [claims] = github.claims
    assert claims["iat"] <= time.time() - 59
    assert claims["exp"] - claims["iat"] <= LONGEST_JWT_S
    assert set(claims) == {"iat", "exp", "iss"}
    assert github.token_prefix not in repr(given)


async def test_other_hosts_and_paths_get_no_token(github: LoopbackGitHub, app: App) -> None:
    for url in ("https://gitlab.com/o/r", "http://github.com/o/r", "ssh://git@github.com/o/r", "https://github.com/o"):
        with pytest.raises(CredentialsFailed, match="OWNER/NAME"):
            await app.credentials("42", url)
    assert github.claims == []


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "clock"), (403, "Contents: read"), (404, "install it"), (422, "installation"), (500, "500")],
)
async def test_a_refusal_names_the_app_the_repository_and_the_next_step(
    github: LoopbackGitHub, app: App, status: int, message: str
) -> None:
    github.refuses = status
    with pytest.raises(CredentialsFailed, match=message) as refused:
        await app.credentials("42", REPOSITORY)
    assert APP_ID in str(refused.value)
    assert "owner/name" in str(refused.value)
    assert "eyJ" not in str(refused.value)  # what a signed claim begins with


async def test_a_foreign_key_is_refused_and_an_invalid_one_is_never_sent(
    github: LoopbackGitHub, app: App, tmp_path: Path
) -> None:
    other = LoopbackGitHub(tmp_path, rsa.generate_private_key(public_exponent=65537, key_size=2048)).app().settings
    with pytest.raises(CredentialsFailed, match="private key"):
        await changed(app, key=other.key).credentials("42", REPOSITORY)
    with pytest.raises(CredentialsFailed, match="PEM") as refused:
        await changed(app, key="hunter2").credentials("42", REPOSITORY)
    assert "hunter2" not in str(refused.value)
    assert github.claims == []


async def test_a_password_that_the_user_keeps_for_the_host_is_not_taken_for_ours(
    github: LoopbackGitHub, app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert (await app.credentials("42", REPOSITORY)).password == f"{github.token_prefix}0"


def test_nothing_is_sent_in_the_clear_beyond_this_machine_and_no_key_is_shown(app: App) -> None:
    with pytest.raises(ValueError, match="use https"):
        changed(app, api="http://api.github.com")
    assert "PRIVATE" not in repr(app)
