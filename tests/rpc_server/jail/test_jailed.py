"""Jailed programs, agents and builds do what they did outside."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from evolverpc_common.settings.sources import SettingsError
from rpc_server.jail.jail import NICENESS, check_jail, create_jails
from tests.rpc_server.conftest import Refusal
from tests.rpc_server.jail.conftest import PROGRAM, Server, serving
from tests.rpc_server.mutations.mutation_server import SCRIPTED
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.program.conftest import DATA, PACKAGE, needs_node


@pytest.mark.asyncio(loop_scope="module")
async def test_a_program_has_caches_of_its_own_where_it_names_none(server: Server) -> None:
    found = await server.found("import os; found = [os.environ[n] for n in ('npm_config_cache', 'DSPY_CACHEDIR')]")
    assert found == ["/tmp/mine", "/tmp/cache/dspy"]  # noqa: S108  in the jail


ESCAPES = r"""
for path in "$REPOSITORY/.git/hooks/post-commit" "$REPOSITORY/.git/config" "$REPOSITORY/app.py" "$HOME/canary"; do
    (echo x >> "$path") 2>/dev/null && echo WROTE "$path"
done
echo new > new.txt; echo "niceness $(nice)"; echo done
"""


@pytest.mark.parametrize(("jails", "escapes"), [((), 0), (("--no-jail",), 4)])
async def test_an_agent_is_jailed_unless_that_is_turned_off(
    tmp_path: Path, jails: tuple[str, ...], escapes: int, capfd: pytest.CaptureFixture[str]
) -> None:
    project, home = Project(tmp_path, {"app.py": PROGRAM}), tmp_path / "home"
    (home / "state").mkdir(parents=True)
    (project.folder / ".git" / "hooks").mkdir(exist_ok=True)
    flags = ("--program", "app.py", "--python", sys.executable, "--workers", "1", "--allow-mutations")
    places = ("--tree-dir", str(tmp_path / "state"), "--agent-command", shlex.join(SCRIPTED))
    variables = {"HOME": str(home), "REPOSITORY": str(project.folder)}
    async with serving(project.folder, *flags, *places, jails=jails, **variables) as server:
        seed = (await server.call("discover"))["program"]["seed_candidate"]
        mutation = {"kind": "change_request", "request": ESCAPES}
        made = await server.call("apply_mutation", candidate=seed, mutation=mutation)
    assert made["files"] == ["new.txt"]
    assert made["summary"].count("WROTE") == escapes
    assert (f"niceness {min(19, os.nice(0) + NICENESS)}\n" in made["summary"]) == (escapes == 0)
    reported = capfd.readouterr().err
    assert ("run in a jail that can write only to" in reported) == (escapes == 0)
    assert ("run with all rights of your user" in reported) == (escapes > 0)


@needs_node
async def test_a_node_program_is_served_and_its_death_is_reported(tmp_path: Path) -> None:
    program = ("node", str(DATA / "misbehaves.mjs"), str(PACKAGE))
    command = ("--workers", "2", "--example-timeout-s", "20", "--command", *program)
    async with serving(tmp_path, *command) as running:
        good = {"way": "good", "output": "still here"}
        results = await running.results(good, {"way": "abort"}, good)
        assert [results[0]["output"], results[2]["output"]] == ["still here", "still here"]
        assert results[1]["status"] == "program_error"


async def test_a_build_may_write_to_the_whole_repository_and_the_program_to_its_own_folder(tmp_path: Path) -> None:
    repository, app = tmp_path / "repository", tmp_path / "repository" / "apps" / "app"
    for folder in (repository / ".git", repository / "lib", app):
        folder.mkdir(parents=True)
    (app / "program.py").write_text(PROGRAM)
    build = "echo word > ../../lib/made.txt; ! touch ../../.git/x ../../../x"
    async with serving(app, "--build-command", f"sh -c '{build}'", "--program", "program.py") as running:
        assert await running.found("found = open('../../lib/made.txt').read()") == "word\n"
        (refused,) = await running.results("open('../../lib/made.txt', 'w')")
        assert "Read-only file system" in refused["error"]["message"]
    assert not (repository / ".git" / "x").exists()
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("variables", "reported"),
    [({"PATH": "/nonexistent"}, "bubblewrap"), ({"PATH": "{fake}"}, "no such luck; allow user")],
)
async def test_without_a_possible_jail_the_server_states_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], reported: str
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho no such luck >&2; exit 1\n")
    fake.chmod(0o755)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(fake=tmp_path))
    with pytest.raises(SettingsError, match=reported):
        await check_jail(create_jails())


def test_a_root_around_the_repository_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "gepa.toml").write_text('root = ".."\nprogram = "program.py"\n')
    assert "`root` is" in refusal(repository, "--jail")
