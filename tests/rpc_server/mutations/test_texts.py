"""Component texts are written to the files that define them."""

import json
from pathlib import Path
from typing import Any

from tests.rpc_server.mutations.mutation_server import served
from tests.rpc_server.mutations.project import FILES, Project

READS = """\
import json
from pathlib import Path

KEPT = Path(__file__).with_name("kept.json")
seed_candidate = json.loads(KEPT.read_text())


def run(example, candidate):
    return {"output": "", "score": 1.0}
"""

WRITES = (
    READS
    + """

def write_texts(candidate):
    KEPT.write_text(json.dumps(candidate))
    (KEPT.parent / "noise.txt").write_text("not asked for")
    return %s
"""
)

KEPT = '{\n    "a": "one",\n    "b": "zwei"\n}\n'


async def test_texts_go_into_the_file_the_seed_is_read_from(tmp_path: Path) -> None:
    project = Project(tmp_path, {**FILES, "seed.json": '{\n    "greeting": "hello",\n    "name": "Zo\u00eb"\n}\n'})
    project.git("update-index", "--chmod=+x", "seed.json")
    project.git("commit", "--quiet", "-m", "Make it executable")
    async with served(project, seed_candidate=Path("seed.json")) as server:
        result = await server.apply("texts", texts={"greeting": "bye\n"})
    assert project.git("ls-tree", result.commit, "seed.json").startswith("100755")
    written = project.git("show", f"{result.commit}:seed.json")
    assert written == '{\n    "greeting": "bye\\n",\n    "name": "Zo\u00eb"\n}'
    assert (result.files, result.candidate["greeting"]) == (["seed.json"], "bye\n")


async def test_a_seed_that_no_commit_holds_cannot_be_written(tmp_path: Path) -> None:
    project = Project(tmp_path)
    seed = tmp_path / "seed.json"
    seed.write_text('{"greeting": "hello"}')
    async with served(project, seed_candidate=seed) as server:
        assert (await server.rejected("texts", texts={"greeting": "bye"}))["stage"] == "edit"
    assert seed.read_text() == '{"greeting": "hello"}'


async def test_a_program_writes_its_texts_itself(tmp_path: Path) -> None:
    project = Project(tmp_path, {"app.py": WRITES % "[KEPT]", "kept.json": KEPT})
    async with served(project) as server:
        assert "write_texts" in server.program.capabilities
        result = await server.apply("texts", texts={"b": "deux"}, candidate={**server.seed, "a": "evolved"})
    assert json.loads(project.git("show", f"{result.commit}:kept.json")) == {"a": "one", "b": "deux"}
    assert result.files == ["kept.json"]
    assert (result.candidate["a"], result.candidate["b"]) == ("evolved", "deux")


async def _rejected(tmp_path: Path, program: str, texts: dict[str, str]) -> dict[str, Any]:
    project = Project(tmp_path, {"app.py": program, "kept.json": KEPT})
    before = project.digest()
    async with served(project) as server:
        reported = await server.rejected("texts", texts=texts)
        assert server.left() == []
    assert (project.digest(), project.branches()) == (before, {})
    return reported


async def test_texts_of_unknown_components_are_refused_and_the_same_texts_are_no_change(tmp_path: Path) -> None:
    project = Project(tmp_path, {"app.py": READS, "kept.json": KEPT})
    async with served(project, seed_candidate=Path("kept.json")) as server:
        for name in ("c", "git_branch"):
            reported = await server.rejected("texts", texts={name: "x"})
            assert (reported["stage"], name in reported["reason"]) == ("edit", True)
        assert (await server.rejected("texts", texts={"a": "one"}))["stage"] == "empty"
        assert server.left() == []


async def test_a_program_that_fails_to_write_is_rejected_with_its_error(tmp_path: Path) -> None:
    reported = await _rejected(tmp_path, WRITES.replace("KEPT.write_text", "KEPT.no_such") % "[]", {"a": "x"})
    assert (reported["stage"], "no_such" in reported["reason"]) == ("edit", True)


async def test_a_file_outside_of_the_repository_is_not_taken(tmp_path: Path) -> None:
    reported = await _rejected(tmp_path, WRITES % '["../../../beside/canary.txt"]', {"a": "x"})
    assert reported["stage"] in ("edit", "paths")
