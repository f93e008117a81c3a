"""Some 210 patches and agents, most of them hostile: each is applied or refused, and nothing else changes.

`make test` runs one of each way to harm, `make faults` all.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.rpc_server.mutations.mutation_server import Served, served
from tests.rpc_server.mutations.patches import APPLIED, PATCHES, SHORT_PATCHES, Case
from tests.rpc_server.mutations.project import FILES, Project
from tests.rpc_server.mutations.scripts import SCRIPTS, SHORT_SCRIPTS

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAX_DIFF_BYTES = 60_000
PYTHON = str(Path(sys.executable).with_name("python"))


class Watched:
    """A server whose project is digested after each case, and not before it too."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._found = self._state()

    async def comes_to(self, case: Case, kind: str, **mutation: str) -> None:
        """Apply a case's mutation: its outcome is the expected one, and nothing but its two refs is new."""
        (digest, refs), (outcome, reported) = self._found, await self._served.outcome(kind, **mutation)
        self._found = self._state()
        assert outcome == case.outcome, reported
        assert self._found == (digest, refs + (2 if case.outcome == APPLIED else 0))
        assert self._served.left() == []

    def _state(self) -> tuple[str, int]:
        return self._served.project.digest(), len(self._served.project.branches())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEPA_TOKEN", "the server's")
        async with served(project, env=env, python=Path(PYTHON), **rules) as running:
            yield Watched(running)


def _parameters(cases: tuple[Case, ...], short: frozenset[str]) -> list[Any]:
    """The cases, of which those that are not in `short` by what they are about are long."""
    assert short <= {case.about for case in cases}
    return [
        pytest.param(
            case,
            id=case.about.encode("unicode_escape").decode(),
            marks=[] if case.about in short else [pytest.mark.long],
        )
        for case in cases
    ]


@pytest.mark.parametrize("case", _parameters(PATCHES, SHORT_PATCHES))
async def test_a_patch_is_applied_or_refused_and_nothing_else_changes(server: Watched, case: Case) -> None:
    await server.comes_to(case, "patch", diff=case.given)


@pytest.mark.parametrize("case", _parameters(SCRIPTS, SHORT_SCRIPTS))
async def test_what_an_agent_leaves_is_taken_or_refused_and_nothing_else_changes(server: Watched, case: Case) -> None:
    await server.comes_to(case, "change_request", request=case.given)
