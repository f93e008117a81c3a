"""Merges of two candidates' code: by git, by an agent if both changed the same lines, or rejected."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, added_to
from tests.rpc_server.mutations.mutation_server import Served, served
from tests.rpc_server.mutations.patches import APP_LINE, added, changed
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.mutations.test_transaction import greets

WRITES_OR_TAKES_BOTH = r"""
prompt=$(cat); text=$(printf '%s' "$prompt" | sed -n '/^<change-request-/{n;p}')
if [ -n "$text" ]; then echo "$text" > notes/one.txt; exit; fi
git log --format=%s HEAD MERGE_HEAD >/dev/null || exit 9
printf '%s' "$prompt" > "$BESIDE/prompt"
sed -i '/^<<<<<<< /d; /^>>>>>>> /d; /^=======$/d' notes/one.txt; echo Took both
"""
"""An agent that writes what it is asked for; of conflicts it takes both sides."""


def first_line(text: str) -> str:
    rest = "".join(f" {line}\n" for line in ("two", "three", "four"))
    return f"--- a/notes/one.txt\n+++ b/notes/one.txt\n@@ -1,4 +1,4 @@\n-one\n+{text}\n{rest}"


LAST_LINE = "--- a/notes/one.txt\n+++ b/notes/one.txt\n@@ -7,4 +7,4 @@\n seven\n eight\n nine\n-ten\n+zehn\n"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A shallow clone, without the commit before its first."""
    project = Project(tmp_path_factory.mktemp("merges"))
    project.git("commit", "--quiet", "--allow-empty", "--message", "The second")
    (project.folder / ".git/shallow").write_text(project.git("rev-parse", "HEAD") + "\n")
    (project.folder / ".git/objects" / project.first[:2] / project.first[2:]).unlink()
    return project


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(project: Project) -> AsyncIterator[Served]:
    async with served(project) as running:
        yield running


async def _both(server: Served, ours: str, theirs: str) -> tuple[dict[str, str], dict[str, str]]:
    return ((await server.apply("patch", diff=ours)).candidate, (await server.apply("patch", diff=theirs)).candidate)


async def test_git_joins_what_does_not_conflict_and_what_was_added_to_either_stays(server: Served) -> None:
    ours, theirs = await _both(server, first_line("uno"), greets("bye", tone="kind"))
    ours = {**ours, "greeting": "own", ADDED_COMPONENTS: added_components({"mine": "1", "both": "ours"})}
    theirs = {**theirs, ADDED_COMPONENTS: added_components({"both": "theirs", "tone": "evolved"})}
    result = await server.apply("merge", candidate=ours, other=theirs)
    assert result.parent == ours[GIT_BRANCH].partition("@")[2]
    parents = server.project.git("rev-parse", f"{result.commit}^1", f"{result.commit}^2").split()
    assert parents == [ours[GIT_BRANCH].partition("@")[2], theirs[GIT_BRANCH].partition("@")[2]]
    assert server.project.git("show", f"{result.commit}:notes/one.txt").startswith("uno\ntwo")
    assert result.candidate["greeting"] == "own"
    assert list(added_to(result.candidate).items()) == [("mine", "1"), ("both", "ours"), ("tone", "evolved")]
    assert result.usage is None


async def test_a_merge_driver_that_the_user_configured_does_not_run_on_what_agents_wrote(tmp_path: Path) -> None:
    project = Project(tmp_path)
    ran = project.folder.parent / "ran"
    project.git("config", "merge.own.driver", f"touch {ran} && git merge-file %A %O %B")
    attributes = project.folder / ".git/info/attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("*.txt merge=own\n")
    async with served(project) as server:
        ours, theirs = await _both(server, first_line("uno"), LAST_LINE)
        result = await server.apply("merge", candidate=ours, other=theirs)
    merged = project.git("show", f"{result.commit}:notes/one.txt").splitlines()
    assert (merged[0], merged[-1]) == ("uno", "zehn")
    assert not ran.exists()


async def test_an_agent_resolves_conflicts_and_its_prompt_names_the_purpose_of_each_line(project: Project) -> None:
    agent = ("sh", "-c", WRITES_OR_TAKES_BOTH)
    async with served(project, agent_command=agent, env={"BESIDE": str(project.folder.parent)}) as server:
        ours = await server.change("first request")
        theirs = await server.change("second request")
        result = await server.apply("merge", candidate=ours.candidate, other=theirs.candidate)
    assert project.git("show", f"{result.commit}:notes/one.txt") == "first request\nsecond request"
    assert result.summary == "Took both"
    reported = (project.folder.parent / "prompt").read_text()
    assert '"notes/one.txt"' in reported
    assert re.search(r"<our-requests-.*\n- first request\n", reported)
    assert re.search(r"<their-requests-.*\n- second request\n", reported)


async def test_conflict_markers_that_are_left_reject(project: Project) -> None:
    (project.beside / "agent").write_text("cat >/dev/null; git add -A; git commit -qm done")
    async with served(project, agent_command=("sh", "../beside/agent")) as server:
        ours, theirs = await _both(server, first_line("uno"), first_line("eins"))
        before = project.branches()
        reported = await server.rejected("merge", candidate=ours, other=theirs)
        assert (reported["stage"], "notes/one.txt" in reported["reason"]) == ("edit", True)
        assert (project.branches(), server.left()) == (before, [])


async def test_what_is_part_of_it_already_is_nothing_to_merge(server: Served) -> None:
    child = (await server.apply("patch", diff=greets("bye"))).candidate
    for other in (server.seed, child):
        assert (await server.rejected("merge", candidate=child, other=other))["stage"] == "empty"


async def test_a_merge_that_does_not_start_is_rejected(server: Served) -> None:
    uses = added("uses.py", "from texts import TEXTS\nLOUD = TEXTS['greeting'].upper()\n")
    uses += f"--- a/app.py\n+++ b/app.py\n@@ -1,3 +1,4 @@\n {APP_LINE}\n \n+import uses\n from texts import TEXTS\n"
    renames = changed("texts.py", 'TEXTS = {"greeting": "hello"}', 'TEXTS = {"hi": "x"}')
    ours, theirs = await _both(server, uses, renames)
    assert (await server.rejected("merge", candidate=ours, other=theirs))["stage"] == "start"
