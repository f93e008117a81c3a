"""Coding agents: one interface, and its two implementations."""

import importlib.util
import json
import re
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ValidationError

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.settings.sources import SettingsError
from protocol.evaluation import Usage
from rpc_server.jail.jail import Jail
from rpc_server.program.stdio import LOG_TAIL_BYTES, LineSplitter
from rpc_server.program.supervised_command import MAX_OUTPUT_BYTES, CommandOutcome, run_supervised
from rpc_server.settings.code_settings import CodeChangeSettings

MAX_SUMMARY = 4_000
"""Characters of an agent's final message that are kept."""

MAX_PROGRESS = 200
"""Characters of one message of progress."""

CLAUDE_CREDENTIALS = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
)
"""Variables of which Claude needs one: it runs without the user's own configuration and its login."""

MAX_LINE_BYTES = 64 * 1024
"""Bytes of one line of output that are read; of a longer one the beginning is."""

_MAX_PROGRESS_AT_ONCE = 20
_RUNS_SCRIPTS = re.compile(r"python[\d.]*|node|bun|deno|ruby|perl|sh|bash|zsh")
_NOT_STARTED = (126, 127)
_STATUS_MEANINGS = {126: " (a command cannot be executed)", 127: " (a command is not found)"}
"""The meaning of shells' exit statuses."""

_SESSION = Path(__file__).with_name("claude_session.py")
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)")


@dataclass(frozen=True)
class AgentTask:
    """A task for an agent in `folder`, its working directory.

    `environment` is its whole environment, with the user's interpreter first on `PATH`. `jail`: its jail.
    """

    folder: Path
    prompt: str
    environment: Mapping[str, str]
    jail: Jail | None = None


@dataclass(frozen=True)
class AgentResult:
    """An agent's final message, at most `MAX_SUMMARY` characters, and its usage as far as known."""

    summary: str
    usage: Usage


class AgentFailed(Exception):
    """The agent crashed or reached a limit of time, turns or cost; its folder is unfinished.

    `usage` is its usage as far as known; `log_tail` the end of its output. `killed`: a signal that the server did not
    send ended it, so that a retry may succeed.
    """

    def __init__(self, reason: str, *, log_tail: str = "", usage: Usage | None = None, killed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log_tail = log_tail
        self.usage = usage if usage is not None else Usage()
        self.killed = killed


class Agent(Protocol):
    """Changes the files of a folder as requested. `name`: in messages."""

    name: str

    async def work(self, task: AgentTask, on_progress: Callable[[str], None]) -> AgentResult:
        """Do the task, reporting progress in lines of at most `MAX_PROGRESS` characters.

        All of its processes have ended when this returns, raises or is cancelled.

        Raises:
            AgentFailed: it crashed or reached a limit.
        """
        ...


def agent_from(settings: CodeChangeSettings) -> Agent:
    """Return the agent that the settings name.

    Raises:
        SettingsError: it is Claude, whose packages are not installed.
    """
    if settings.agent_command is not None:
        return CommandAgent(settings.agent_command, timeout_s=settings.agent_timeout_s)
    if importlib.util.find_spec("claude_agent_sdk") is None:
        raise SettingsError(
            "`allow_mutations`: the coding agent is not installed: run pip install '.[agent]' in the folder of "
            "evolverpc, or name one of your own with `agent_command`"
        )
    return ClaudeAgent(
        model=settings.agent_model,
        tools=settings.agent_tools,
        max_turns=settings.agent_max_turns,
        max_cost_usd=settings.agent_max_cost_usd,
        timeout_s=settings.agent_timeout_s,
    )


def agent_label(settings: CodeChangeSettings) -> str:
    """Return which agent carries out change requests, with its model, for people."""
    if settings.agent_command is not None:
        return command_name(settings.agent_command)
    return f"Claude (model {settings.agent_model or 'of its own choice; --agent-model names one'})"


def command_name(command: tuple[str, ...]) -> str:
    """Return the name of an agent command: the executable's, or the script's that it runs."""
    name = Path(command[0]).name
    if len(command) > 1 and _RUNS_SCRIPTS.fullmatch(name) and not command[1].startswith("-"):
        return Path(command[1]).name
    return name


class CommandAgent:
    """An agent with a command line: it reads the prompt on stdin; its last lines on stdout are the summary."""

    def __init__(self, command: tuple[str, ...], *, timeout_s: float) -> None:
        self.name = command_name(command)
        self._command = command
        self._timeout_s = timeout_s

    async def work(self, task: AgentTask, on_progress: Callable[[str], None]) -> AgentResult:
        """Run the command; a non-zero exit status is a failure."""
        log, output = OutputTail(LOG_TAIL_BYTES), OutputTail(LOG_TAIL_BYTES)
        lines = LineSplitter(MAX_LINE_BYTES)

        def on_output(data: bytes) -> None:
            log.add(data)
            output.add(data)
            for line in [*lines.feed(data)][-_MAX_PROGRESS_AT_ONCE:]:  # more would be unreadable
                if shown := _shown(line.decode("utf-8", "replace")):
                    on_progress(shown)

        outcome = await _run_in_task(
            self._command, task, task.prompt.encode(), self._timeout_s, on_output=on_output, log=log
        )
        if reason := _failure_reason(outcome, self.name, self._timeout_s):
            log_tail = log.text()
            if outcome.status in _NOT_STARTED and log_tail.startswith(
                not_started := f"cannot start {self._command[0]}: "
            ):
                reason = f"{self._command[0]} cannot be started: {log_tail.removeprefix(not_started).strip()}"
            raise AgentFailed(reason, log_tail=log_tail, killed=_was_killed(outcome))
        return AgentResult(_printable(output.text()).strip()[-MAX_SUMMARY:], Usage())


class ClaudeAgent:
    """The Claude agent, in a process of its own; without `model` it chooses its own."""

    name = "claude"

    def __init__(
        self, *, model: str | None, tools: tuple[str, ...], max_turns: int, max_cost_usd: float | None, timeout_s: float
    ) -> None:
        self._options = {"model": model, "tools": tools, "max_turns": max_turns, "max_cost_usd": max_cost_usd}
        self._timeout_s = timeout_s

    async def work(self, task: AgentTask, on_progress: Callable[[str], None]) -> AgentResult:
        """Run one session."""
        session = _Session(on_progress)
        given = {"folder": str(task.folder), "prompt": task.prompt, **self._options}
        command = (sys.executable, "-I", str(_SESSION))
        outcome = await _run_in_task(
            command, task, json.dumps(given).encode(), self._timeout_s, on_output=session.take, log=session.log
        )
        stated = session.stated
        failed = _shown(stated.failed or "") or _failure_reason(outcome, self.name, self._timeout_s)
        if failed is not None or stated.done is None:
            reason = failed or "its session ended without an answer"
            killed = stated.killed or (stated.failed is None and _was_killed(outcome))
            raise AgentFailed(reason, log_tail=_printable(session.log.text()), usage=stated.usage, killed=killed)
        return AgentResult(_printable(stated.done).strip()[:MAX_SUMMARY], stated.usage)


class _SessionEvent(BaseModel):
    """A line of `claude_session.py`."""

    progress: str | None = None
    usage: Usage = Usage()
    done: str | None = None
    failed: str | None = None
    killed: bool = False


class _Session:
    """The events of a session so far."""

    def __init__(self, on_progress: Callable[[str], None]) -> None:
        self._on_progress = on_progress
        self._lines = LineSplitter(MAX_LINE_BYTES)
        self.log = OutputTail(LOG_TAIL_BYTES)
        self.stated = _SessionEvent()

    def take(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            try:
                event = _SessionEvent.model_validate_json(line)
            except ValidationError:
                self.log.add(line + b"\n")  # printed by another program
                continue
            if event.progress is not None:
                self.log.add(event.progress.encode() + b"\n")
                self._on_progress(_shown(event.progress))
            self.stated = self.stated.model_copy(update={name: getattr(event, name) for name in event.model_fields_set})


async def _run_in_task(
    command: tuple[str, ...],
    task: AgentTask,
    prompt: bytes,
    timeout_s: float,
    *,
    on_output: Callable[[bytes], None],
    log: OutputTail,
) -> CommandOutcome:
    try:
        return await run_supervised(
            command,
            folder=task.folder,
            environment=task.environment,
            stdin=prompt,
            timeout_s=timeout_s,
            on_output=on_output,
            on_log=log.add,
            jail=task.jail,
        )
    except OSError as error:
        raise AgentFailed(f"{command[0]} cannot be started in {task.folder}: {error.strerror}") from error


def _failure_reason(outcome: CommandOutcome, name: str, timeout_s: float) -> str | None:
    if outcome.out_of_time:
        return f"{name} was not done after {timeout_s:g} s (`agent_timeout_s`)"
    if outcome.too_much_output:
        return f"{name} wrote more than {MAX_OUTPUT_BYTES} bytes of output"
    if outcome.status == 0:
        return None
    if (killer := _signal_of(outcome)) is not None:
        return f"{name} was killed by {killer.name}"
    return f"{name} exited with status {outcome.status}{_STATUS_MEANINGS.get(outcome.status, '')}"


def _was_killed(outcome: CommandOutcome) -> bool:
    """Report whether a signal that the server did not send ended it."""
    return not outcome.out_of_time and not outcome.too_much_output and _signal_of(outcome) is not None


def _signal_of(outcome: CommandOutcome) -> signal.Signals | None:
    """Return the signal of an exit status in shells' notation; None for other statuses, such as 255."""
    try:
        return signal.Signals(outcome.status - 128)
    except ValueError:
        return None


def _printable(text: str) -> str:
    """Remove the control characters that a terminal would interpret."""
    return "".join(char for char in _ESCAPES.sub("", text) if char.isprintable() or char in "\n\t")


def _shown(text: str) -> str:
    return " ".join(_printable(text.replace("\r", "\n")).split())[:MAX_PROGRESS]
