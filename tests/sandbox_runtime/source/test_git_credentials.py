"""Credentials of git: sent to one server by one command, and stored nowhere else."""

import logging
import secrets
from pathlib import Path

import pytest

from sandbox_runtime.source import GitFailed, GitToken, Source
from sandbox_runtime.source.remote_git import Credentials
from tests.sandbox_runtime.source.repositories import commit, git_host

GITS_OWN = {"git", "git-remote-http", "git-remote-https", "sh"}
"""Git, its helper for the protocol, and the shell that git asks for credentials."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    commit(tmp_path / "served" / "r", {"program.py": "print('one')\n"})
    return tmp_path / "served"


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's own git would write down what worked."""
    config, stored = tmp_path / "gitconfig", tmp_path / "stored"
    config.write_text(f"[credential]\n\thelper = store --file {stored}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    return stored


def files_with(folder: Path, secret: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def exists(path: Path) -> bool:
    return path.exists()


async def test_a_token_reaches_git_and_its_server_and_no_file_log_argument_or_other_process(
    root: Path, tmp_path: Path, stored: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = secrets.token_hex(20)
    progress: list[str] = []
    async with git_host(root, token) as host:
        source = Source(host.url("r"), credentials=GitToken(token, host.host), cache=tmp_path / "cache")
        checkout = await source.ready(on_progress=progress.append)
        assert host.authorized >= 2
    assert {where for _, where in host.seen} == {"environ"}
    assert {program for program, _ in host.seen} <= GITS_OWN
    assert files_with(tmp_path, token) == []
    assert not exists(stored)
    assert token not in caplog.text + repr(progress) + repr(checkout) + repr(GitToken(token))


async def test_the_error_for_a_refused_token_does_not_contain_it(root: Path, tmp_path: Path, stored: Path) -> None:
    token = secrets.token_hex(20)
    async with git_host(root, "another") as host:
        source = Source(host.url("r"), credentials=GitToken(token, host.host), cache=tmp_path / "cache")
        with pytest.raises(GitFailed) as failed:
            await source.ready(on_progress=print)
    assert token not in str(failed.value)
    assert files_with(tmp_path, token) == []


async def test_git_never_prompts_for_a_missing_token(root: Path, tmp_path: Path, stored: Path) -> None:
    async with git_host(root, "secret") as host:
        with pytest.raises(GitFailed, match="give a token or a GitHub App"):
            await Source(host.url("r"), cache=tmp_path / "cache").ready(on_progress=print)
    assert host.authorized == 0


async def test_a_token_is_not_sent_to_the_target_of_a_redirect(root: Path, tmp_path: Path, stored: Path) -> None:
    token = secrets.token_hex(20)
    async with git_host(root, token) as other, git_host(root, "", redirect_to=f"http://{other.host}") as host:
        source = Source(host.url("r"), credentials=GitToken(token, host.host), cache=tmp_path / "cache")
        with pytest.raises(GitFailed):
            await source.ready(on_progress=print)
        assert other.authorized == 0


def test_a_token_is_sent_to_its_host_only_and_never_unencrypted(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t\n")
    token = GitToken.from_file(tmp_path / "token", "git.example.com")
    url = "https://git.example.com/o/r"
    assert token.for_url(url) == Credentials(url, "x-access-token", "t")
    found = Credentials(url, "x-access-token", "a/b+c")
    assert found.redacted(f"a/b+c a%2Fb%2Bc {found.basic}") == "*** *** ***"
    for url in (
        "https://git.example.com.evil.com/o/r",
        "https://git.example.com:444/o/r",
        "https://pages.git.example.com/o/r",
        "http://git.example.com/o/r",
        "ssh://git@git.example.com/o/r",
        "file:///git.example.com/r",
    ):
        assert token.for_url(url) is None
