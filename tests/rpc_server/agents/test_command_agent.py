"""A command as an agent: the prompt on stdin, changed files as the result, bounded output."""

import pytest

from protocol.evaluation import Usage
from rpc_server.mutations.agents import MAX_LINE_BYTES, MAX_PROGRESS, MAX_SUMMARY, Agent, AgentFailed
from rpc_server.program import supervised_command as commands_run


def agent(script: str, *, timeout_s: float = 30.0) -> Agent:
    return Agent("sh", ("sh", "-c", script), timeout_s)


async def test_the_prompt_is_on_its_stdin_and_the_folder_its_working_directory(workplace):
    done = await workplace.work(
        agent("cat > app.py; echo changed app.py; echo written to stderr >&2"), "print('HELLO')"
    )
    assert (workplace.folder / "app.py").read_text() == "print('HELLO')"
    assert done.summary == "changed app.py"
    assert done.usage == Usage()
    assert workplace.reported == ["changed app.py"]


async def test_another_exit_status_than_0_is_a_failure_with_what_it_wrote(workplace):
    with pytest.raises(AgentFailed) as failed:
        await workplace.work(agent("echo thinking; echo out of ideas >&2; exit 3"))
    assert failed.value.reason == "sh exited with status 3"
    assert set(failed.value.log_tail.splitlines()) == {"thinking", "out of ideas"}
    assert failed.value.usage == Usage()
    events = """echo '{"usage": {"cost_usd": 0.5}}'; echo '{"progress": "Edit app.py"}'; exit 1"""
    with pytest.raises(AgentFailed) as failed:
        await workplace.work(Agent("claude", ("sh", "-c", events), 30.0, session={}))
    assert failed.value.usage == Usage(cost_usd=0.5)


async def test_a_command_that_does_not_exist_is_a_failure(workplace):
    with pytest.raises(AgentFailed) as failed:
        await workplace.work(Agent("nonesuch", ("nonesuch",), 30.0))
    assert failed.value.reason == "nonesuch cannot be started: No such file or directory"
    assert failed.value.log_tail == "cannot start nonesuch: No such file or directory\n"


@pytest.mark.parametrize("script", ["exit 0", "exec <&-; echo done"])
async def test_it_need_not_read_a_prompt_that_no_pipe_holds(workplace, script):
    await workplace.work(agent(script), "word " * 2**20)


async def test_output_without_end_ends_it(workplace, monkeypatch):
    monkeypatch.setattr(commands_run, "MAX_OUTPUT_BYTES", 2**20)
    with pytest.raises(AgentFailed, match="wrote more than"):
        await workplace.work(agent("yes for ever"))
    assert len(workplace.reported) < 2**20 / len("for ever\n") / 10  # only the last lines of each chunk
    assert set(workplace.reported) == {"for ever"}


async def test_a_line_without_end_is_cut(workplace):
    done = await workplace.work(agent(f"head -c {3 * MAX_LINE_BYTES} /dev/zero | tr '\\0' x; echo; echo end"))
    assert workplace.reported == ["x" * MAX_PROGRESS, "end"]
    assert done.summary.endswith("x\nend")
    assert len(done.summary) <= MAX_SUMMARY


async def test_output_that_is_not_utf8_or_would_move_a_terminal_is_made_harmless(workplace):
    done = await workplace.work(agent(r"printf 'caf\351 \033[31mred\033[0m \033]0;title\007\001 over\rdone\n'"))
    assert workplace.reported == ["caf� red over done"]
    assert done.summary == "caf� red  overdone"


async def test_temporary_files_have_a_folder_that_goes_with_it(workplace):
    done = await workplace.work(agent("touch $TMPDIR/left; mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a; echo $TMPDIR"))
    assert done.summary.startswith(workplace.environment["TMPDIR"] + "/gepa-command-")
