"""Some two hundred patches and agents, most of them hostile: each is applied or refused, and nothing else changes."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.rpc_server.mutations.mutation_server import Served, served
from tests.rpc_server.mutations.patches import APPLIED, PATCHES, Case
from tests.rpc_server.mutations.project import FILES, Project
from tests.rpc_server.mutations.scripts import SCRIPTS

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAX_DIFF_BYTES = 60_000
PYTHON = str(Path(sys.executable).with_name("python"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    place: Path = tmp_path_factory.mktemp("hostile")
    project = Project(place, {**FILES, "notes/big.txt": "big\n" * 5000}, links=True)
    project.write({"shared/file": "the user's\n"})
    env = {
        "PROJECT": str(project.folder),
        "BESIDE": str(project.beside),
        "PYTHON": PYTHON,
        "WHO": "-c user.name=a -c user.email=a@b",
    }
    rules = {"links": ("shared",), "deny": ("secrets", "**/*.lock"), "max_diff_bytes": MAX_DIFF_BYTES, "max_trees": 2}
    async with served(project, env=env, python=Path(PYTHON), **rules) as running:
        yield running


def _named(case: Case) -> str:
    return case.about.encode("unicode_escape").decode()


@pytest.mark.parametrize("case", PATCHES, ids=_named)
async def test_a_patch_is_applied_or_refused_and_nothing_else_changes(server: Served, case: Case) -> None:
    await _comes_to(server, case, "patch", diff=case.given)


@pytest.mark.parametrize("case", SCRIPTS, ids=_named)
async def test_what_an_agent_leaves_is_taken_or_refused_and_nothing_else_changes(server: Served, case: Case) -> None:
    await _comes_to(server, case, "change_request", request=case.given)


async def test_there_are_many_cases() -> None:
    assert len({*PATCHES, *SCRIPTS}) >= 200


async def _comes_to(server: Served, case: Case, kind: str, **mutation: str) -> None:
    before, branches = server.project.digest(), server.project.branches()
    outcome, reported = await server.outcome(kind, **mutation)
    assert outcome == case.outcome, reported
    assert server.project.digest() == before
    assert server.left() == []
    assert len(server.project.branches()) == len(branches) + (2 if case.outcome == APPLIED else 0)
