"""A mutation is applied completely or not at all, and is idempotent by its name."""

import asyncio
import base64
import errno
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from evolverpc_common.git import Git
from evolverpc_common.settings.sources import SettingsError
from protocol.code import GIT_BRANCH, added_to, git_branch
from protocol.errors import InvalidParams, ProgramFailed, UnknownCandidate
from protocol.evaluation import Usage
from rpc_server.mutations.agents import Agent, AgentFailed, AgentResult
from rpc_server.mutations.transaction import changed_candidate
from rpc_server.program.launcher import PythonLauncher
from tests.rpc_server.mutations.mutation_server import Served, served
from tests.rpc_server.mutations.patches import added, changed
from tests.rpc_server.mutations.project import FILES, Project
from tests.support.processes import is_running

GREETING = 'TEXTS = {"greeting": "hello"}'
WAIT_S = 20

pytestmark = pytest.mark.asyncio(loop_scope="module")
MOST_STEPS = 100


def greets(text: str, **others: str) -> str:
    """A patch of the program's texts."""
    return changed("texts.py", GREETING, f"TEXTS = {json.dumps({'greeting': text, **others})}")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@asynccontextmanager
async def serving(project: Project) -> AsyncIterator[Callable[..., Any]]:
    """`await start(setting=value)`: a server's mutations; in the end nothing of it is left, nothing else changed."""
    before = project.digest()
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> Served:
            return await stack.enter_async_context(served(project, **settings))

        yield start
    assert project.digest() == before
    assert list((project.folder.parent / "state" / "servers").iterdir()) == []


@pytest_asyncio.fixture(loop_scope="module")
async def serve(project: Project) -> AsyncIterator[Callable[..., Any]]:
    async with serving(project) as start:
        yield start


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A server with the usual settings, whose project several tests change by names of their own."""
    async with serving(Project(tmp_path_factory.mktemp("shared"))) as start:
        yield await start()


async def test_a_patch_becomes_a_commit_on_a_branch_and_a_candidate_whose_bundle_brings_it_to_a_clone(
    server: Served, tmp_path: Path
) -> None:
    server.project.git("clone", "--quiet", str(server.project.folder), str(tmp_path / "clone"))
    result = await server.apply("patch", diff=greets("bye", tone="kind"), name="run-1/7")
    assert (result.branch, result.parent) == ("evolve/run-1/7", server.project.first)
    assert result.files == ["texts.py"]
    assert "+TEXTS" in result.diff
    assert result.candidate[GIT_BRANCH] == git_branch("evolve/run-1/7", result.commit)
    assert result.candidate["greeting"] == "bye"
    assert added_to(result.candidate) == {"tone": "kind"}
    assert (result.components_added, result.components_removed) == (["tone"], [])
    renamed = await server.apply("patch", diff=changed("texts.py", GREETING, 'TEXTS = {"hi": "x"}'))
    assert (renamed.components_added, renamed.components_removed) == (["hi"], ["greeting"])
    assert server.project.git("rev-parse", "evolve/run-1/7", "evolve/run-1/7^") == f"{result.commit}\n{result.parent}"
    (tmp_path / "bundle").write_bytes(base64.b64decode(result.bundle or ""))
    server.project.git("-C", str(tmp_path / "clone"), "fetch", "--quiet", str(tmp_path / "bundle"), result.branch or "")
    assert server.project.git("-C", str(tmp_path / "clone"), "rev-parse", "FETCH_HEAD") == result.commit


async def test_a_name_stands_for_one_request_and_a_text_that_the_commit_does_not_change_stays(server: Served) -> None:
    own = {**server.seed, "greeting": "evolved"}
    result = await server.apply("patch", candidate=own, diff=added("notes/new.txt"), name="one/1")
    assert result.candidate["greeting"] == "evolved"
    assert result.components_added == []
    with pytest.raises(InvalidParams):
        await server.apply("patch", candidate=own, diff=greets("hi"), name="one/1")


async def test_the_commit_states_its_reason_and_names_no_machine(server: Served) -> None:
    result = await server.change("echo x > notes/new.txt\necho All is well", name="r/3")
    message = server.project.git("log", "-1", "--format=%an <%ae>%n%B", result.commit)
    assert message.splitlines()[:2] == ["gepa-server <gepa-server@localhost>", "echo x > notes/new.txt"]
    assert message.splitlines()[3:5] == ["echo x > notes/new.txt", "echo All is well"]
    assert message.endswith("All is well\n\nMutation: change_request\nRun: r/3")
    assert result.summary == "All is well"


async def test_a_repeated_call_is_given_the_same_answer_and_costs_nothing(
    serve: Callable[..., Any], project: Project
) -> None:
    script = 'echo x >> "$BESIDE/runs"; cat "$BESIDE/runs" > notes/new.txt'
    env = {"BESIDE": str(project.folder.parent)}
    server = await serve(env=env)
    first, meanwhile = await asyncio.gather(*(server.change(script, name="r/1") for _ in range(2)))
    again = await (await serve(env=env)).change(script, name="r/1")
    assert again == meanwhile == first
    assert (project.folder.parent / "runs").read_text() == "x\n"
    project.git("-c", "core.logAllRefUpdates=false", "update-ref", "refs/heads/evolve/r/1", project.first)
    with pytest.raises(InvalidParams):
        await (await serve(env=env)).change(script, name="r/1")


async def test_as_many_changes_run_at_once_as_the_settings_state(serve: Callable[..., Any], project: Project) -> None:
    server = await serve(max_mutations=1, env={"BUSY": str(project.folder.parent / "busy")})
    script = 'mkdir "$BUSY" && sleep 0.1 && rmdir "$BUSY" && echo x > notes/new.txt'
    made = await asyncio.gather(*(server.change(script) for _ in range(2)))
    assert [one.files for one in made] == [["notes/new.txt"]] * 2


async def test_a_missing_commit_a_branch_from_elsewhere_and_a_program_that_does_not_start_are_reported(
    server: Served,
) -> None:
    server.project.git("-c", "core.logAllRefUpdates=false", "update-ref", "refs/heads/evolve/elsewhere/1", "HEAD")
    with pytest.raises(InvalidParams):
        await server.apply("patch", diff=greets("bye"), name="elsewhere/1")
    elsewhere = {**server.seed, GIT_BRANCH: git_branch("main", "1" * 40)}
    for kind, given in (("patch", {"diff": greets("bye"), "candidate": elsewhere}), ("merge", {"other": elsewhere})):
        with pytest.raises(UnknownCandidate) as caught:
            await server.apply(kind, **given)
        assert caught.value.details["commit"] == "1" * 40
    reported = await server.rejected("patch", diff=changed("texts.py", GREETING, "TEXTS = missing"))
    assert reported["stage"] == "start"
    assert "missing" in reported["reason"] and "texts.py" in reported["log_tail"]
    assert "+TEXTS = missing" in reported["diff"]
    assert str(server.project.beside.parent) not in reported["log_tail"]


async def test_a_failing_check_rejects_with_its_output(serve: Callable[..., Any]) -> None:
    check = ("python", "-c", "from texts import TEXTS; assert TEXTS['greeting'] != 'bad', 'too rude'")
    server = await serve(check_command=check)
    assert (await server.apply("patch", diff=greets("good"))).files == ["texts.py"]
    reported = await server.rejected("patch", diff=greets("bad"))
    assert (reported["stage"], "too rude" in reported["log_tail"]) == ("check", True)
    assert len(list((server.program.instances.state.folder / "trees").iterdir())) == 2  # of the seed and the good one


async def test_a_check_that_hangs_is_stopped_with_all_it_started(serve: Callable[..., Any], project: Project) -> None:
    pid = project.folder.parent / "pid"
    server = await serve(check_command=("sh", "-c", f"sleep 300 & echo $! > {pid}; wait"), check_timeout_s=2.0)
    assert (await server.rejected("patch", diff=greets("bye")))["stage"] == "check"
    assert not is_running(int(pid.read_text()))
    assert len(list((server.program.instances.state.folder / "trees").iterdir())) == 1  # the seed's


async def test_a_check_must_leave_the_files_as_they_are(serve: Callable[..., Any]) -> None:
    server = await serve(
        build_command=("sh", "-c", "echo '# built' >> texts.py"),
        check_command=("sh", "-c", "touch app.py; echo x > x.log; grep -q fine notes/new.txt || rm app.py"),
    )
    assert (await server.apply("patch", diff=added("notes/new.txt", "fine\n"))).files == ["notes/new.txt"]
    reported = await server.rejected("patch", diff=added("notes/new.txt"))
    assert reported["stage"] == "check"
    assert "app.py" in reported["reason"] and "texts.py" not in reported["reason"]


async def test_a_build_that_fails_rejects(serve: Callable[..., Any]) -> None:
    server = await serve(build_command=("sh", "-c", "! grep -r unbuildable notes"))
    reported = await server.rejected("patch", diff=added("notes/new.txt", "unbuildable\n"))
    assert (reported["stage"], "unbuildable" in reported["log_tail"]) == ("build", True)


async def test_an_agent_that_takes_too_long_is_ended(serve: Callable[..., Any]) -> None:
    server = await serve(agent_timeout_s=0.5)
    reported = await server.rejected("change_request", request="echo begun; sleep 300")
    assert (reported["stage"], reported["log_tail"]) == ("agent", "begun\n")
    assert "sh was not done after 0.5 s (`agent_timeout_s`)" in reported["reason"]


@pytest.mark.parametrize(
    ("stage", "settings"),
    [
        ("is at work", {}),
        pytest.param("running the check", {"check_command": ("sleep", "300")}, marks=pytest.mark.long),
        pytest.param(
            "building",
            {"build_command": ("sh", "-c", "if [ -e notes/new.txt ]; then sleep 300; fi")},
            marks=pytest.mark.long,
        ),
    ],
)
async def test_cancelling_leaves_nothing(serve: Callable[..., Any], stage: str, settings: dict[str, Any]) -> None:
    server = await serve(**settings)
    script = "echo x > notes/new.txt" if settings else "sleep 300"
    call = asyncio.ensure_future(server.change(script))
    async with asyncio.timeout(WAIT_S):
        await server.reached(stage)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert server.left() == []
    assert server.project.branches() == {}


@pytest.mark.long
async def test_cancelling_at_any_git_command_leaves_nothing(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, run = await serve(), Git.__call__
    loop = asyncio.get_running_loop()
    for step in range(MOST_STEPS):
        call = asyncio.ensure_future(server.apply("patch", diff=greets("bye"), name=f"r/{step}"))
        monkeypatch.setattr(Git, "__call__", _cancelling(run, step, loop, call))
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait([call])
        assert server.left() == []
        if not call.cancelled():
            made = {f"refs/{kind}/r/{step}" for kind in ("heads/evolve", "evolverpc")}
            assert server.project.branches().keys() == made
            assert call.result().branch == f"evolve/r/{step}"
            return
        assert server.project.branches() == {}
    pytest.fail("none came to its end")


async def test_a_defect_leaves_nothing_and_is_no_rejection(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = server.project.branches()
    monkeypatch.setattr(server.program.instances.repository, "publish", full)
    with pytest.raises(OSError, match="No space"):
        await server.apply("patch", diff=greets("bye"))
    assert server.left() == []
    assert server.project.branches() == before


async def test_only_what_is_allowed_may_change(serve: Callable[..., Any]) -> None:
    server = await serve(allow=("notes/**", "*.py"), deny=("notes/private",))
    assert (await server.apply("patch", diff=added("notes/x.txt"))).files == ["notes/x.txt"]
    for path in ("tools/x", "notes/private/x"):
        assert (await server.rejected("patch", diff=added(path)))["stage"] == "paths"


async def test_a_submodule_s_folder_is_not_looked_into(tmp_path: Path) -> None:
    project = Project(
        tmp_path / "other", {**FILES, ".gitmodules": '[submodule "vendor"]\n\tpath = vendor\n\turl = x\n'}
    )
    project.git("update-index", "--add", "--cacheinfo", f"160000,{project.first},vendor")
    project.git("commit", "--quiet", "-m", "With a submodule")
    before = project.digest()
    plant = """git init --quiet vendor; cd vendor
        git config core.fsmonitor "$EVIL; echo"; git config filter.x.clean "$EVIL; cat"
        echo '* filter=x' > .gitattributes; echo x > x; git -c core.fsmonitor= -c filter.x.clean=cat add x
        git -c core.fsmonitor= -c filter.x.clean= -c user.name=a -c user.email=a@b commit --quiet -m x; echo y > x
        cd ..; echo x > notes/new.txt"""
    async with served(project, env={"EVIL": f"echo pwned >> {project.beside}/canary.txt"}) as server:
        assert (await server.change(plant)).files == ["notes/new.txt"]
        assert (await server.change(f"{plant}; rm -r vendor")).files == ["notes/new.txt"]
    assert project.digest() == before


async def test_a_filter_that_the_user_configured_does_not_run_what_an_agent_wrote(tmp_path: Path) -> None:
    project = Project(tmp_path / "other", {**FILES, ".gitattributes": "*.txt filter=own\n"})
    for name in ("clean", "smudge"):
        project.git("config", f"filter.own.{name}", f"cat; test ! -e tools/filter || touch {tmp_path}/ran")
    async with served(project) as server:
        made = await server.change("touch tools/filter; echo new > notes/one.txt")
        assert made.files == ["notes/one.txt", "tools/filter"]
        assert (await server.change("echo again > notes/one.txt", candidate=made.candidate)).files == ["notes/one.txt"]
    assert not (tmp_path / "ran").exists()


async def test_an_unknown_remote_is_reported_at_the_start(project: Project) -> None:
    with pytest.raises(SettingsError, match="push"):
        async with served(project, push="nowhere"):
            pass


@pytest.mark.parametrize("version", [(2, 37, 4), ()])
async def test_a_git_that_is_too_old_is_reported_at_the_start(
    project: Project, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...]
) -> None:
    monkeypatch.setattr("git.Git.version_info", version)
    with pytest.raises(SettingsError, match=r"git 2\.38"):
        async with served(project):
            pass


def _cancelling(
    run: Callable[..., bytes], step: int, loop: asyncio.AbstractEventLoop, call: Any
) -> Callable[..., bytes]:
    """Runs git, and cancels the call when `step` commands have been run."""
    counted = count()

    def counting(self: Git, *arguments: Any, **options: Any) -> bytes:
        if next(counted) == step:
            cancelled = threading.Event()
            loop.call_soon_threadsafe(lambda: (call.cancel(), cancelled.set()))
            assert cancelled.wait(WAIT_S)
        return run(self, *arguments, **options)

    return counting


async def test_an_agent_that_is_killed_is_a_rejection_that_names_the_signal(server: Served) -> None:
    details = await server.rejected("change_request", request="echo half > notes/half.txt; kill -9 $$")
    assert (details["stage"], details["reason"]) == ("agent", "sh was killed by SIGKILL")


async def test_what_an_agent_cost_is_stated_with_its_failure_and_with_one_of_the_machine_which_is_no_rejection(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = Usage(cost_usd=0.25, input_tokens=9)

    async def works(*_arguments: Any, folder: Path, **_options: Any) -> AgentResult:
        (folder / "notes/made.txt").touch()
        return AgentResult("done", usage)

    async def fails(*_arguments: Any, **_options: Any) -> None:
        raise AgentFailed("too many turns", usage=usage)

    async def refused(_: PythonLauncher) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(Agent, "work", fails)
    details = await server.rejected("change_request", request="x")
    assert (details["reason"], details["usage"]) == ("too many turns", {"cost_usd": 0.25, "input_tokens": 9})
    monkeypatch.setattr(Agent, "work", works)
    monkeypatch.setattr(PythonLauncher, "launch", refused)
    with pytest.raises(ProgramFailed) as failed:
        await server.change("x")
    assert failed.value.retryable
    assert failed.value.details["usage"] == details["usage"]


async def test_a_component_that_comes_back_keeps_the_text_that_it_had() -> None:
    candidate = {"greeting": "optimized", GIT_BRANCH: git_branch("a", "0" * 40)}
    found = changed_candidate(candidate, {}, {"greeting": "of the commit"}, "b", "1" * 40)
    assert found["greeting"] == "optimized"
