"""A program whose candidates name commits: each runs in a tree of its own, with processes of its own."""

import asyncio
import errno
import json
import shutil
import sys
from pathlib import Path

import pytest

from protocol.code import added_to, by_requested_component
from protocol.errors import ProgramFailed, TrajectoryExpired, UnknownCandidate
from rpc_server.methods.dataset_rows import program_rows
from rpc_server.mutations.transaction import changed_candidate
from rpc_server.program.launcher import PythonLauncher
from rpc_server.program.process import ProgramProcess
from rpc_server.worktrees.candidates import requested_from_program
from rpc_server.worktrees.instances import Instance
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.program.conftest import DATA
from tests.rpc_server.worktrees.worktree_project import APP, FILES, Open, second
from tests.support.processes import is_running
from tests.support.waiting import eventually


async def test_the_seed_names_the_checked_out_commit(project: Project, opened: Open) -> None:
    project.git("checkout", "--quiet", "-b", "feature@2")
    here = await opened(project)
    assert here.seed == {"greeting": "hello", "git_branch": f"feature-2@{project.first}", "added_components": "{}"}
    kinds = [(part.name, part.kind) for part in here.program.info.components]
    assert kinds[1:] == [("git_branch", "code"), ("added_components", "added")]


async def test_each_commit_runs_its_own_files_in_a_folder_and_environment_of_its_own(
    project: Project, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(project.folder / ".git"))  # as a hook has it
    other = second(project, {"helper.py": "ANSWER = 2\n", "new.py": ""})
    (project.folder / "helper.py").write_text("ANSWER = 'not committed'\n")
    here = await opened(project)
    one, two = await asyncio.gather(here.output(here.seed), here.output(here.at(other)))
    assert (one["answer"], two["answer"]) == (1, 2)
    assert [name for name in one["files"] if name != "__pycache__"] == [".gitignore", "app.py", "helper.py"]
    assert "new.py" in two["files"]
    for messages, unlike in ((one, two), (two, one)):
        tree = Path(messages["cwd"])
        assert tree.is_relative_to(here.state)
        assert {messages["file"], messages["helper"]} == {str(tree / "app.py"), str(tree / "helper.py")}
        assert tree.parent == Path(messages["env"]["TMPDIR"]).parent
        assert messages["env"]["TMPDIR"] != unlike["env"]["TMPDIR"]
        assert str(project.folder) not in json.dumps(messages)
        assert unlike["cwd"] not in json.dumps(messages)


async def test_a_commit_is_given_the_texts_of_the_components_it_has(project: Project, opened: Open) -> None:
    seed = 'seed_candidate = {"greeting": "hi", "tone": "warm", "closing": "bye"}'
    other = second(project, {"app.py": str(FILES["app.py"]).replace('seed_candidate = {"greeting": "hello"}', seed)})
    here = await opened(project)
    candidate = here.at(other, added_components='{"tone": "cold", "gone": "x"}')
    assert (await here.output(candidate))["candidate"] == {"greeting": "hello", "tone": "cold", "closing": "bye"}
    at_seed = {**candidate, "git_branch": here.seed["git_branch"]}
    assert (await here.output(at_seed))["candidate"] == {"greeting": "hello"}


async def test_an_unknown_commit_is_reported_even_if_nothing_is_to_run(project: Project, opened: Open) -> None:
    here = await opened(project)
    missing = here.at("d" * 40)
    with pytest.raises(UnknownCandidate) as refused:
        await here.program.evaluate(missing, [], capture_traces=False, on_result=lambda *_: None)
    assert refused.value.details["commit"] == "d" * 40
    with pytest.raises(UnknownCandidate):
        await here.records(missing, [])


async def test_a_commit_that_cannot_run_has_that_as_its_result_and_is_tried_once(
    project: Project, opened: Open, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    broken = second(project, {"helper.py": f"open({str(marker)!r}, 'a').write('x')\nraise RuntimeError('not today')\n"})
    reserved = str(FILES["app.py"]).replace('"greeting": "hello"', '"git_branch": ""')
    pid = f"import os\nANSWER = open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    named = second(project, {"app.py": reserved, "helper.py": pid})
    here = await opened(project)
    (result,) = await here.results(here.at(named))
    assert "has a meaning where code evolves" in result["error"]["message"]
    assert not is_running(int((tmp_path / "pid").read_text()))
    for _ in range(2):
        (result,) = await here.results(here.at(broken))
        assert result["status"] == "program_error"
        assert "not today" in result["error"]["traceback"]
        assert 'File "helper.py", line 2' in result["error"]["traceback"]  # and not where its tree is
    assert marker.read_text() == "x"
    assert here.folders == 1
    with pytest.raises(ProgramFailed):
        await here.records(here.at(broken), [])


async def test_a_start_that_took_too_long_is_no_score_and_is_tried_again(
    project: Project, opened: Open, tmp_path: Path
) -> None:
    quick = tmp_path / "quick"
    other = second(
        project, {"helper.py": f"import os, time\nANSWER = os.path.exists({str(quick)!r}) or time.sleep(60)\n"}
    )
    here = await opened(project)
    trees = here.program.instances
    patient = trees.settings
    trees.settings = patient.model_copy(update={"start_timeout_s": 0.5})
    with pytest.raises(ProgramFailed, match="did not start within") as failed:
        await here.results(here.at(other))
    assert failed.value.retryable
    quick.touch()
    trees.settings = patient
    assert (await here.output(here.at(other)))["answer"] is True


async def test_a_machine_that_has_no_process_to_give_is_no_score(
    project: Project, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = APP.replace("    report = {", "    os._exit(1)\n    report = {")
    commit = second(project, {"app.py": ends})
    here, launch, left = await opened(project), PythonLauncher.launch, [1]

    async def once(launcher: PythonLauncher) -> ProgramProcess:
        if not left:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        left.pop()
        return await launch(launcher)

    monkeypatch.setattr(PythonLauncher, "launch", once)
    with pytest.raises(ProgramFailed, match="cannot start a process: Resource temporarily unavailable") as failed:
        await here.results(here.at(commit))
    assert failed.value.retryable


async def test_what_is_in_use_stays_and_the_end_of_the_server_is_no_score(
    project: Project, opened: Open, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    waits = f"    open({str(begun)!r}, 'w').close()\n    __import__('time').sleep(60)\n    report = {{"
    other = second(project, {"app.py": APP.replace("    report = {", waits)})
    here = await opened(project, max_trees=1)
    evaluating = asyncio.ensure_future(here.results(here.at(other)))
    await eventually(begun.exists)
    calls = (evaluating, asyncio.ensure_future(here.output(here.seed)))
    done, _ = await asyncio.wait(calls, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
    assert not done
    await here.program.close()
    for call in calls:
        with pytest.raises(ProgramFailed, match="shutting down"):
            await call


async def test_the_least_recently_used_instance_is_evicted_and_rebuilt(project: Project, opened: Open) -> None:
    commits = {answer: second(project, {"helper.py": f"ANSWER = {answer}\n"}) for answer in (2, 3, 4)}
    here = await opened(project, max_trees=2)
    trees = {}
    for answer, is_kept in ((2, False), (3, False), (2, True), (4, False), (2, True), (3, False)):
        found = await here.output(here.at(commits[answer]))
        assert (found["answer"], found["cwd"] == trees.get(answer)) == (answer, is_kept)
        trees[answer] = found["cwd"]
        assert here.folders <= 2


async def test_what_is_being_closed_counts_in_the_bound(
    project: Project, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = second(project, {"helper.py": "ANSWER = 2\n"})
    here = await opened(project, max_trees=1)
    closed, instances = asyncio.Event(), here.program.instances
    close_instance = instances.close_instance

    async def close(instance: Instance) -> None:
        await closed.wait()
        await close_instance(instance)

    monkeypatch.setattr(instances, "close_instance", close)
    taking = asyncio.ensure_future(here.output(here.at(other)))
    await asyncio.wait([taking], timeout=0.05)
    assert not taking.done()
    assert here.folders == 1
    closed.set()
    assert (await taking)["answer"] == 2


async def test_a_call_that_is_cancelled_leaves_no_half_made_tree(project: Project, opened: Open) -> None:
    other = second(project, {"helper.py": "import time\ntime.sleep(60)\n"})
    here = await opened(project)
    evaluating = asyncio.ensure_future(here.results(here.at(other)))
    await eventually(lambda: here.folders >= 2)
    evaluating.cancel()
    await asyncio.wait([evaluating])
    await eventually(lambda: here.folders <= 1)


STDIO = (DATA / "stdio.py").read_text()
COMMAND = (sys.executable, "p.py", "refs", "reflective_datasets", "adapter_state", "datasets")
REFUSES = 'answer(request, error={"code": -32602, "message": "no more"})'
DIES = 'open("died", "w"), sys.exit("no more")'


def failing(fault: str) -> str:
    """A program that starts, and then not once more where it died."""
    starts = "import os\nif os.path.exists('died'): __import__('sys').exit('no more')\nimport sys\n"
    return STDIO.replace("import os\nimport sys\n", starts).replace(
        "    (example,) =", f"    return {fault}\n    (example,) ="
    )


@pytest.mark.parametrize("fault", [REFUSES, DIES])
async def test_a_program_that_starts_and_then_does_not_work_is_its_candidates_fault(
    tmp_path: Path, opened: Open, fault: str
) -> None:
    project = Project(tmp_path, {"p.py": STDIO})
    other = second(project, {"p.py": failing(fault)})
    here = await opened(project, command=COMMAND, workers=None)
    results = await here.results(here.at(other), {}, {})
    assert [result["status"] for result in results] == ["program_error"] * 2
    assert "no more" in str(results)


async def test_a_seed_that_starts_and_then_does_not_work_is_no_candidates_fault(tmp_path: Path, opened: Open) -> None:
    here = await opened(Project(tmp_path, {"p.py": failing(DIES)}), command=COMMAND, workers=None)
    with pytest.raises(ProgramFailed, match=r"no more|before it answered"):
        await here.results(here.seed, {})


async def test_trajectories_of_an_evicted_instance_have_expired_and_the_state_passes_to_the_next_commit(
    tmp_path: Path, opened: Open
) -> None:
    project = Project(tmp_path, {"p.py": STDIO})
    other = second(project, {"other.py": ""})
    here = await opened(project, command=COMMAND, workers=None, max_trees=1)
    rows = [{"do": "result", "result": {"trajectory_ref": ref}} for ref in ("1", "2")]
    (asked,) = await here.evaluate({"do": "meta"}, candidate=here.seed, group="g", timeout_s=9.0)
    assert asked["output"] == {"group": "g", "example_timeout_s": 9.0}
    results = await here.results(here.seed, *rows, capture_traces=True)
    assert (await here.records(here.seed, results, "prompt"))["dataset"] == {"prompt": [{"refs": ["1", "2"]}]}
    given = {"candidate": here.seed, "eval_batch": {"batch": [], "results": []}, "components_to_update": []}
    await here.program.call("make_reflective_dataset", {**given, "adapter_state": {"seen": 3}})
    assert (await here.records(here.at(other), []))["adapter_state"] == {"seen": 3}
    await here.results(here.seed, *rows, capture_traces=True)
    with pytest.raises(TrajectoryExpired) as lost:
        await here.records(here.seed, results, "prompt")
    assert lost.value.details["refs"] == [result["trajectory_ref"] for result in results]
    assert await program_rows(here.program) == {"train": [{"output": "held"}] * 3}


OWN_METHODS = """

def finalize(best_candidate, best_score, run):
    os.mkdir("made")
    print(best_score, file=open("made/score", "w"))
    return "done"


def make_reflective_dataset(candidate, eval_batch, components_to_update):
    return {name: [{"asked": list(components_to_update)}] for name in components_to_update}
"""


async def test_a_programs_records_about_the_code_are_those_of_all_components_once(opened: Open, tmp_path: Path) -> None:
    project = Project(tmp_path / "own", {**FILES, "app.py": f"{FILES['app.py']}{OWN_METHODS}"})
    here = await opened(project, artifacts=Path("made"))
    ended = await here.program.call("finalize", {"best_candidate": here.seed, "best_score": 0.5, "run": {}})
    assert (ended, (project.folder / "made/score").read_text()) == ({"message": "done"}, "0.5\n")
    shutil.rmtree(project.folder / "made")
    results = await here.results(here.seed, {}, capture_traces=True)
    assert results[0]["trajectory"] == ["app.py"], "without the folder, which is another on each server"
    answer = await here.records(here.seed, results, "git_branch", "greeting", "added_components")
    assert answer["dataset"]["git_branch"] == answer["dataset"]["greeting"] == [{"asked": ["greeting"]}]
    assert answer["dataset"]["added_components"] == []
    differing = {"a": [{"x": 1}], "b": [{"x": 2}]}
    labelled = [{"Component": "a", "x": 1}, {"Component": "b", "x": 2}]
    assert by_requested_component(differing, ["git_branch"], here.seed) == {"git_branch": labelled}
    added = {"added_components": '{"b": "", "c": ""}'}
    assert by_requested_component(differing | {"c": [{"x": 2}]}, [*added], added) == {"added_components": [{"x": 2}]}


async def test_two_servers_of_one_commit_are_the_same_program_and_another_commit_is_not(
    project: Project, opened: Open, tmp_path: Path
) -> None:
    copy = Project(tmp_path / "copy")
    shutil.rmtree(copy.folder)
    project.git("clone", "--quiet", str(project.folder), str(copy.folder))
    one, two = await opened(project, program=str(project.folder / "app.py")), await opened(copy)
    assert one.program.info.digest == two.program.info.digest is not None
    three = await opened(Project(tmp_path / "third", {**FILES, "helper.py": "ANSWER = 3\n"}))
    assert three.program.info.digest != one.program.info.digest


def test_a_text_that_a_commit_changed_is_the_new_one_also_of_a_component_that_another_commit_added() -> None:
    candidate = {"greeting": "evolved", "git_branch": f"b@{'1' * 40}", "added_components": '{"tone": "warm"}'}
    before, now = {"greeting": "hi", "tone": "warm"}, {"greeting": "hi", "tone": "cold"}
    moved = changed_candidate(candidate, before, now, "b", "2" * 40)
    assert (moved["greeting"], added_to(moved)) == ("evolved", {"tone": "cold"})
    assert requested_from_program(["added_components", "greeting"], candidate, now) == ["tone", "greeting"]
