"""Git runs no program of a repository, keeps passwords out of errors, and leaves no process behind."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from evolverpc_common.git import GitError, GitTimeout, filters_off, git_environment, run_git, run_git_async
from tests.support.processes import is_running
from tests.support.waiting import eventually


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "file").write_text("content")
    return folder


def test_hooks_filters_and_file_monitors_of_a_repository_are_not_run(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    script.chmod(0o755)
    hooks = repository / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-commit", "post-commit", "reference-transaction"):
        (hooks / name).symlink_to(script)
    (repository / ".gitattributes").write_text("* filter=evil\n")
    for name, value in (("core.fsmonitor", str(script)), ("filter.evil.clean", str(script))):
        subprocess.run(["git", "-C", str(repository), "config", name, value], check=True)
    settings = filters_off(["core.fsmonitor", "filter.evil.clean"])
    who = {"user.name": "n", "user.email": "e"}
    run_git("add", "-A", folder=repository, settings=settings)
    run_git("commit", "-q", "-m", "m", folder=repository, settings=settings | who)
    run_git("status", folder=repository, settings=settings)
    assert not ran.exists()
    run_git("add", "--renormalize", ".", folder=repository)
    assert ran.exists(), "without the settings the filter runs"


def test_variables_of_another_repository_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_TRACE", "SSH_ASKPASS"):
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/users")
    environment = git_environment()
    assert not {"GIT_DIR", "GIT_INDEX_FILE", "GIT_TRACE", "SSH_ASKPASS"} & environment.keys()
    assert environment["GIT_CONFIG_GLOBAL"] == "/users"


def test_an_error_is_one_line_without_passwords(repository: Path) -> None:
    with pytest.raises(GitError) as caught:
        run_git("fetch", "https://user:secret@host.invalid/x", folder=repository)
    assert "secret" not in str(caught.value) + caught.value.stderr
    assert "\n" not in str(caught.value)


async def test_a_slow_command_is_killed_with_everything_that_it_started(repository: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = ("-c", f"alias.slow=!echo $$ >> {pids}; sleep 600", "slow")
    with pytest.raises(GitTimeout, match=r"0\.3 s"):
        await asyncio.to_thread(lambda: run_git(*command, folder=repository, timeout_s=0.3))
    with pytest.raises(GitTimeout, match=r"0\.3 s"):
        await run_git_async(*command, folder=repository, timeout_s=0.3)
    running = asyncio.create_task(run_git_async(*command, folder=repository))
    await eventually(lambda: len(pids.read_text().split()) >= 3)
    running.cancel()
    await asyncio.wait([running])
    await eventually(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()))


def test_network_is_refused_unless_it_is_asked_for(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["git", "init", "-q", "--bare", str(other)], check=True)
    with pytest.raises(GitError, match="not allowed"):
        run_git("ls-remote", f"file://{other}", folder=repository)
    asyncio.run(run_git_async("ls-remote", f"file://{other}", folder=repository, network=True))
    assert "GIT_ALLOW_PROTOCOL" not in os.environ
