"""A client's sandbox, with the process backend: its program, its environment, its commands, over stops and starts."""

import io
import shutil
import sys
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_runtime import EnvironmentMissing, Open, SandboxGone, SandboxNotReady
from sandbox_runtime.backends.process import ProcessBackend
from sandbox_runtime.runtime import Runtime
from sandbox_runtime.source import ClientSandbox, ClientSettings, Source, workspace
from tests.sandbox_runtime.backend import parse_request
from tests.sandbox_runtime.environments.wheels import make_wheel
from tests.sandbox_runtime.gateway_session import Echoing
from tests.sandbox_runtime.source.repositories import commit, git
from tests.sandbox_runtime.stub_server import SOURCE
from tests.support.pnpm_workspace import PNPM_WORKSPACE, needs_npm_registry

FILES = {"app/serve.py": SOURCE.decode(), "app/requirements.txt": "greeting==1.0\n", "top.txt": "top"}
SETTINGS = ClientSettings(main=(sys.executable, "serve.py"), egress=Open(), ready_s=30.0, labels={"client": "one"})

Make = Callable[..., ClientSandbox]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Environments of all these tests, and the only place that packages come from."""
    folder = tmp_path_factory.mktemp("shared")
    for version in ("1.0", "2.0"):
        make_wheel(folder / "wheels", "greeting", version, {"greeting.py": f"WORDS = 'hello {version}'\n"})
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    commit(tmp_path / "repository", FILES)
    return tmp_path / "repository"


@pytest.fixture
async def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: Path) -> AsyncIterator[Runtime]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(shared / "wheels"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    async with ProcessBackend() as runtime:
        yield runtime


@pytest.fixture
async def make(runtime: Runtime, repository: Path, tmp_path: Path) -> AsyncIterator[Make]:
    made: list[ClientSandbox] = []

    def make(settings: ClientSettings = SETTINGS, folder: str = "app", **given: object) -> ClientSandbox:
        source = Source(str(repository / folder), cache=tmp_path / "sources")
        made.append(ClientSandbox(runtime, source, settings, **given))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for sandbox in made:
        await sandbox.close()


async def shell_output(sandbox: ClientSandbox, script: str, env: Mapping[str, str] | None = None) -> str:
    done = await sandbox.exec_bash(script, 30, env)
    assert (done.status, done.stderr) == (0, b"")
    return done.stdout.decode().strip()


async def answer_of(sandbox: ClientSandbox) -> dict[str, Any]:
    """Return the answer of the program's server."""
    status, answer = await parse_request(await sandbox.endpoint())
    assert status == 200
    return answer


async def test_a_sandbox_has_the_program_at_its_commit_with_its_environment_and_again_once_it_was_stopped(
    make: Make, repository: Path
) -> None:
    (repository / "app" / "serve.py").write_text("not committed")
    sandbox = make()
    endpoint = await sandbox.start()
    assert (await answer_of(sandbox))["cwd"].endswith("/app")
    assert await sandbox.endpoint() == endpoint
    assert await shell_output(sandbox, "basename $PWD; cat ../top.txt") == "app\ntop"
    assert await shell_output(sandbox, "python -c 'import greeting; print(greeting.WORDS)'") == "hello 1.0"
    assert await shell_output(sandbox, "git rev-parse HEAD") == git(repository, "rev-parse", "HEAD")
    assert await shell_output(sandbox, "git status --porcelain; git remote") == ""
    assert await shell_output(sandbox, 'echo "$MINE"; [[ 1 == 1 ]]', {"MINE": "yes"}) == "yes"
    late = await sandbox.exec_bash("echo begun; sleep 60", 0.5)
    assert (late.timed_out, late.stdout) == (True, b"begun\n")
    assert (await sandbox.exec_bash("exit 3")).status == 3
    await shell_output(sandbox, "echo changed > ../top.txt")
    await sandbox.stop()
    with pytest.raises(SandboxGone):
        await sandbox.exec_bash("true")
    with pytest.raises(SandboxGone):
        await sandbox.endpoint()
    assert (await sandbox.wait()).kind == "terminated"
    await sandbox.start()
    assert await shell_output(sandbox, "cat ../top.txt") == "top"


async def test_a_prebuilt_command_is_found_by_scripts_and_by_the_server_also_after_a_restart(make: Make) -> None:
    sandbox = make(replace(SETTINGS, commands={"early": b"#!/bin/sh\necho early $1\n"}))
    await sandbox.add_command("before", b"#!/bin/sh\necho before\n")
    await sandbox.start()
    await sandbox.add_command("late", b"#!/bin/sh\necho late\n")
    await sandbox.add_command("git", b"#!/bin/sh\necho ours goes first\n")
    for is_first in (True, False):
        assert await shell_output(sandbox, "early one; before; late; git") == "early one\nbefore\nlate\nours goes first"
        path = (await answer_of(sandbox))["env"]["PATH"]
        for command in ("early", "before", "late"):
            assert str(shutil.which(command, path=path)).endswith(f"/bin/{command}")
        if is_first:
            await sandbox.stop()
            await sandbox.start()


async def test_artifacts_are_those_that_the_servers_arguments_name_before_those_of_its_file(
    make: Make, repository: Path
) -> None:
    commit(repository, {"app/gepa.toml": 'artifacts = "other"\n', "app/other/b": "2", "app/made/a": "1"})
    sandbox = make(replace(SETTINGS, server_args=("--artifacts=other", "--artifacts=made")))
    await sandbox.start()
    (packed,) = await sandbox.artifacts()
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert [member.name for member in tar if member.isfile()] == ["./a"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace, "ARTIFACTS_BYTES", 600)
        assert [len(each) for each in await sandbox.artifacts()] == [600]


async def test_a_command_has_a_name_for_a_command(make: Make) -> None:
    for name in ("", "../x", "a b", "-x", ".hidden", "x" * 65, "a\n"):
        with pytest.raises(ValueError, match="cannot be the name"):
            await make().add_command(name, b"")


async def test_reinstall_deps_uses_the_present_manifests_and_keeps_changes_and_the_sandbox_if_the_build_fails(
    make: Make, repository: Path
) -> None:
    sandbox = make()
    clean = (await sandbox.prepare()).recipe.digest
    await sandbox.start()
    await shell_output(
        sandbox, "echo greeting==2.0 > requirements.txt; echo new > new.txt; rm ../top.txt; head -c 99 /dev/zero > z"
    )
    await sandbox.reinstall_deps()
    assert (await answer_of(sandbox))["cwd"].endswith("/app")
    assert await shell_output(sandbox, "python -c 'import greeting; print(greeting.WORDS)'") == "hello 2.0"
    assert await shell_output(sandbox, "ls ..; cat new.txt; wc -c < z") == "app\nnew\n99"
    assert await shell_output(sandbox, "git rev-parse HEAD") == git(repository, "rev-parse", "HEAD")
    changed = (await sandbox.prepare()).recipe.digest
    assert (await make().prepare()).recipe.digest == clean != changed
    await sandbox.stop()
    await sandbox.start()
    assert await shell_output(sandbox, "cat new.txt") == "new"
    first = sandbox.id
    await shell_output(sandbox, "echo greeting==3.0 > requirements.txt")
    with pytest.raises(EnvironmentMissing, match="greeting"):
        await sandbox.reinstall_deps()
    assert sandbox.id == first
    assert (await answer_of(sandbox))["cwd"].endswith("/app")


async def test_each_start_has_its_own_gateway_session_which_closes_with_the_sandbox(make: Make) -> None:
    names: list[str] = []
    sessions: list[Echoing] = []

    def open_session(name: str) -> Echoing:
        names.append(name)
        sessions.append(Echoing())
        return sessions[-1]

    def are_open() -> list[bool]:
        return [any(server.is_serving() for server in each.servers) for each in sessions]

    sandbox = make(name="first", open_session=open_session)
    await sandbox.start()
    assert (await shell_output(sandbox, 'echo "$MODELS"')).startswith("http://127.0.0.1:")
    await sandbox.stop()
    await sandbox.start()
    assert (names, are_open()) == (["first", "first"], [False, True])
    await sandbox.close()
    failing = make(replace(SETTINGS, main=("false",)), open_session=open_session)
    with pytest.raises(SandboxNotReady):
        await failing.start()
    assert are_open() == [False, False, False]


LOCAL_PACKAGES = {
    "app/package.json": """{"name": "app", "type": "module", "dependencies": {"shared": "file:../libs/shared"}}""",
    "app/requirements.txt": "",
    "app/ask.js": "import { word } from 'shared'; console.log(word);",
    "libs/shared/package.json": """{"name": "shared", "version": "1.0.0", "type": "module", "main": "dist/index.js",
        "dependencies": {"base": "file:../base"},
        "scripts": {"prepare": "mkdir -p dist && cp source.js dist/index.js"}}""",
    "libs/shared/source.js": "export { word } from 'base';",
    "libs/base/package.json": """{"name": "base", "version": "1.0.0", "type": "module", "main": "index.js"}""",
    "libs/base/index.js": "export const word = 'local';",
    ".gitignore": "dist/",
}


@pytest.mark.long
@needs_npm_registry
async def test_a_pnpm_workspace_is_installed_from_its_lock(make: Make, repository: Path) -> None:
    commit(repository, {**PNPM_WORKSPACE, "app/requirements.txt": ""})
    sandbox = make(replace(SETTINGS, ready_s=60.0))
    await sandbox.start()
    assert await shell_output(sandbox, "node ask.js && semver 1.2.3") == "local 7\n1.2.3"
    assert await shell_output(sandbox, "git status --porcelain") == ""
    changed = "echo \"export const word = 'mine';\" > ../shared/made.js; node ask.js"
    assert await shell_output(sandbox, changed) == "mine 7"


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm here")
async def test_local_node_packages_are_those_of_the_commit_and_are_prepared(make: Make, repository: Path) -> None:
    commit(repository, LOCAL_PACKAGES)
    sandbox = make(replace(SETTINGS, ready_s=60.0))
    await sandbox.start()
    assert await shell_output(sandbox, "node ask.js") == "local"
    assert await shell_output(sandbox, "git status --porcelain") == ""
    assert (
        await shell_output(sandbox, "echo \"export const word = 'mine';\" > ../libs/base/index.js; node ask.js")
        == "mine"
    )


@pytest.mark.long
@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm here")
async def test_a_local_package_that_cannot_be_prepared_ends_the_start_with_its_output(
    make: Make, repository: Path
) -> None:
    broken = LOCAL_PACKAGES["libs/shared/package.json"].replace("mkdir -p dist", "echo no compiler; exit 3")
    commit(repository, {**LOCAL_PACKAGES, "libs/shared/package.json": broken})
    with pytest.raises(EnvironmentMissing, match="no compiler"):
        await make(replace(SETTINGS, ready_s=60.0)).start()
