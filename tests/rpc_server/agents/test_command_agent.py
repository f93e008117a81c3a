"""A command as an agent: the prompt on stdin, changed files as the result, bounded output."""

import os
import re
import signal
import sys

import pytest

from protocol.evaluation import Usage
from rpc_server.mutations.agents import MAX_PROGRESS, MAX_SUMMARY, AgentFailed, CommandAgent
from rpc_server.program import supervised_command as commands_run


def agent(script: str, *, timeout_s: float = 30.0) -> CommandAgent:
    return CommandAgent(("sh", "-c", script), timeout_s=timeout_s)


async def test_the_prompt_is_on_its_stdin_and_the_folder_its_working_directory(workplace):
    done = await workplace.work(
        agent("cat > app.py; echo changed app.py; echo written to stderr >&2"), "print('HELLO')"
    )

    assert (workplace.folder / "app.py").read_text() == "print('HELLO')"
    assert done.summary == "changed app.py"
    assert done.usage == Usage()
    assert workplace.reported == ["changed app.py"]


async def test_it_gets_the_environment_of_the_task_and_nothing_of_the_servers(workplace, monkeypatch):
    monkeypatch.setenv("GEPA_TOKEN", "of-the-server")

    done = await workplace.work(agent("command -v python; echo ${GEPA_TOKEN-none}"))

    assert done.summary.splitlines() == [workplace.environment["PATH"].partition(":")[0] + "/python", "none"]


async def test_another_exit_status_than_0_is_a_failure_with_what_it_wrote(workplace):
    with pytest.raises(AgentFailed) as failed:
        await workplace.work(agent("echo thinking; echo out of ideas >&2; exit 3"))

    assert failed.value.reason == "sh exited with status 3"
    assert set(failed.value.log_tail.splitlines()) == {"thinking", "out of ideas"}
    assert failed.value.usage == Usage()


async def test_a_signal_is_a_failure_that_names_it(workplace):
    with pytest.raises(AgentFailed, match="sh was killed by SIGSEGV"):
        await workplace.work(agent("kill -SEGV $$"))


async def test_a_command_that_does_not_exist_is_a_failure(workplace):
    with pytest.raises(AgentFailed) as failed:
        await workplace.work(CommandAgent(("nonesuch",), timeout_s=30.0))

    assert failed.value.reason == "nonesuch cannot be started: No such file or directory"
    assert failed.value.log_tail == "cannot start nonesuch: No such file or directory\n"


async def test_a_shells_status_for_commands_it_cannot_run_is_explained(workplace):
    for script, status in (("nonesuch", "127 (a command is not found)"), ("./app.py", "126 (a command cannot be")):
        with pytest.raises(AgentFailed, match=re.escape(f"sh exited with status {status}")):
            await workplace.work(agent(script))


async def test_a_folder_that_does_not_exist_is_a_failure(workplace):
    workplace.folder /= "nowhere"

    with pytest.raises(AgentFailed, match=r"cannot be started in .*/nowhere: No such file"):
        await workplace.work(agent("true"))


@pytest.mark.parametrize("script", ["exit 0", "exec <&-; echo done"])
async def test_it_need_not_read_a_prompt_that_no_pipe_holds(workplace, script):
    await workplace.work(agent(script), "word " * 2**20)


async def test_it_may_read_a_prompt_of_megabytes(workplace):
    done = await workplace.work(agent("wc -c"), "word " * 2**20)

    assert done.summary == str(5 * 2**20)


async def test_output_without_end_ends_it(workplace, monkeypatch):
    monkeypatch.setattr(commands_run, "MAX_OUTPUT_BYTES", 2**20)

    with pytest.raises(AgentFailed, match="wrote more than"):
        await workplace.work(agent("yes for ever"))

    assert len(workplace.reported) < 2**20 / len("for ever\n") / 10  # only the last lines of each chunk
    assert set(workplace.reported) == {"for ever"}


async def test_a_line_without_end_is_cut(workplace):
    done = await workplace.work(
        agent(f"head -c {3 * commands_run.MAX_LINE_BYTES} /dev/zero | tr '\\0' x; echo; echo end")
    )

    assert workplace.reported == ["x" * MAX_PROGRESS, "end"]
    assert done.summary.endswith("x\nend")
    assert len(done.summary) <= MAX_SUMMARY


async def test_output_that_is_not_utf8_or_would_move_a_terminal_is_made_harmless(workplace):
    done = await workplace.work(agent(r"printf 'caf\351 \033[31mred\033[0m \033]0;title\007\001 over\rdone\n'"))

    assert workplace.reported == ["caf� red over done"]
    assert done.summary == "caf� red  overdone"


async def test_a_last_line_needs_no_end(workplace):
    done = await workplace.work(agent("printf 'first\nlast'"))

    assert done.summary == "first\nlast"
    assert workplace.reported == ["first", "last"]


async def test_its_deadline_is_a_failure_with_what_it_wrote_so_far(workplace):
    with pytest.raises(AgentFailed) as failed:
        await workplace.work(agent("echo begun; sleep 600", timeout_s=0.5))

    assert failed.value.reason == "sh was not done after 0.5 s (`agent_timeout_s`)"
    assert failed.value.log_tail == "begun\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_no_signal_is_blocked_and_a_broken_pipe_ends_it(workplace):
    done = await workplace.work(agent("grep -E 'SigBlk|SigIgn' /proc/self/status"))

    blocked, ignored = (int(line.split()[1], 16) for line in done.summary.splitlines())
    assert blocked == 0
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


async def test_temporary_files_have_a_folder_that_goes_with_it(workplace):
    done = await workplace.work(agent("touch $TMPDIR/left; mkdir -p $TMPDIR/a/b; echo $TMPDIR"))

    assert done.summary.startswith(workplace.environment["TMPDIR"] + "/gepa-command-")


async def test_temporary_files_go_however_deep_they_are(workplace):
    nests = (
        "import os, sys\nos.chdir(os.environ['TMPDIR'])\nfor _ in range(1500): os.mkdir('deeper'), os.chdir('deeper')\n"
    )

    await workplace.work(CommandAgent((sys.executable, "-c", nests), timeout_s=30.0))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_unreadable_temporary_files_are_removed(workplace):
    await workplace.work(agent("mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a/b $TMPDIR/a $TMPDIR"))


async def test_a_command_that_removes_its_temporary_folder_keeps_its_exit_status(workplace):
    with pytest.raises(AgentFailed) as failed:
        await workplace.work(agent("rmdir $TMPDIR; exit 3"))

    assert failed.value.reason == "sh exited with status 3"
    assert failed.value.log_tail == ""
