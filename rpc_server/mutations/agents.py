"""Coding agents: a command of the user's, or a session of Claude in a process of its own."""

import importlib.util
import json
import re
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.settings.sources import SettingsError
from protocol.evaluation import Usage
from rpc_server.jail.jail import Jail
from rpc_server.program.stdio import LOG_TAIL_BYTES, LineSplitter
from rpc_server.program.supervised_command import MAX_OUTPUT_BYTES, CommandOutcome, run_supervised
from rpc_server.settings import CodeChangeSettings

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
_STATUS_MEANINGS = {126: " (a command cannot be executed)", 127: " (a command is not found)"}
"""The meaning of shells' exit statuses."""

_SESSION = Path(__file__).with_name("claude_session.py")
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)")


@dataclass(frozen=True)
class AgentResult:
    """An agent's final message, at most `MAX_SUMMARY` characters, and its usage as far as known."""

    summary: str
    usage: Usage


class AgentFailed(Exception):
    """The agent crashed or reached a limit of time, turns or cost; its folder is unfinished.

    `usage` is its usage as far as known; `log_tail` the end of its output.
    """

    def __init__(self, reason: str, *, log_tail: str = "", usage: Usage | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log_tail = log_tail
        self.usage = usage if usage is not None else Usage()


@dataclass(frozen=True)
class Agent:
    """Changes the files of a folder as requested. `name`: in messages.

    `command` reads the prompt on stdin; its last lines on stdout are the summary. With `session`, it is
    `claude_session.py`, which reads the prompt with these options and writes events.
    """

    name: str
    command: tuple[str, ...]
    timeout_s: float
    session: Mapping[str, object] | None = None

    async def work(
        self,
        prompt: str,
        on_progress: Callable[[str], None],
        *,
        folder: Path,
        environment: Mapping[str, str],
        jail: Jail | None,
    ) -> AgentResult:
        """Work in a folder, reporting progress in lines of at most `MAX_PROGRESS` characters.

        `environment`: its whole environment, with the user's interpreter first on `PATH`. All of its processes have
        ended when this returns, raises or is cancelled.

        Raises:
            AgentFailed: it crashed, exited with another status than 0, or reached a limit.
        """
        output = _Output(on_progress, has_events=self.session is not None)
        stdin = prompt
        if self.session is not None:
            stdin = json.dumps({"folder": str(folder), "prompt": prompt, **self.session})
        try:
            outcome = await run_supervised(
                self.command,
                folder=folder,
                environment=environment,
                stdin=stdin.encode(),
                timeout_s=self.timeout_s,
                on_output=output.take,
                on_log=output.log.add,
                jail=jail,
            )
        except OSError as error:
            raise AgentFailed(f"{self.command[0]} cannot be started in {folder}: {error.strerror}") from error
        stated, log_tail = output.stated, _printable(output.log.text())
        reason = _shown(stated.failed or "") or self._failure_reason(outcome, log_tail)
        if reason is None and self.session is not None and stated.done is None:
            reason = "its session ended without an answer"
        if reason is not None:
            raise AgentFailed(reason, log_tail=log_tail, usage=stated.usage)
        summary = output.written.text() if stated.done is None else stated.done
        return AgentResult(_printable(summary).strip()[-MAX_SUMMARY:], stated.usage)

    def _failure_reason(self, outcome: CommandOutcome, log_tail: str) -> str | None:
        if outcome.out_of_time:
            return f"{self.name} was not done after {self.timeout_s:g} s (`agent_timeout_s`)"
        if outcome.too_much_output:
            return f"{self.name} wrote more than {MAX_OUTPUT_BYTES} bytes of output"
        if outcome.status == 0:
            return None
        not_started = f"cannot start {self.command[0]}: "
        if outcome.status in _STATUS_MEANINGS and log_tail.startswith(not_started):
            return f"{self.command[0]} cannot be started: {log_tail.removeprefix(not_started).strip()}"
        if (killer := _signal_of(outcome)) is not None:
            return f"{self.name} was killed by {killer.name}"
        return f"{self.name} exited with status {outcome.status}{_STATUS_MEANINGS.get(outcome.status, '')}"


def agent_from(settings: CodeChangeSettings) -> Agent:
    """Return the agent that the settings name.

    Raises:
        SettingsError: it is Claude, whose packages are not installed.
    """
    if settings.agent_command is not None:
        return Agent(command_name(settings.agent_command), settings.agent_command, settings.agent_timeout_s)
    if importlib.util.find_spec("claude_agent_sdk") is None:
        raise SettingsError(
            "`allow_mutations`: the coding agent is not installed: run pip install '.[agent]' in the folder of "
            "evolverpc, or name one of your own with `agent_command`"
        )
    options = {
        "model": settings.agent_model,
        "tools": settings.agent_tools,
        "max_turns": settings.agent_max_turns,
        "max_cost_usd": settings.agent_max_cost_usd,
    }
    return Agent("claude", (sys.executable, "-I", str(_SESSION)), settings.agent_timeout_s, options)


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


class _SessionEvent(BaseModel):
    """A line of `claude_session.py`."""

    progress: str | None = None
    usage: Usage = Usage()
    done: str | None = None
    failed: str | None = None


class _Output:
    """What an agent has written so far: `log` for people, `written` to stdout, and `stated` in events if it has any."""

    def __init__(self, on_progress: Callable[[str], None], *, has_events: bool) -> None:
        self._on_progress = on_progress
        self._has_events = has_events
        self._lines = LineSplitter(MAX_LINE_BYTES)
        self.log = OutputTail(LOG_TAIL_BYTES)
        self.written = OutputTail(LOG_TAIL_BYTES)
        self.stated = _SessionEvent()

    def take(self, data: bytes) -> None:
        lines = [*self._lines.feed(data)]
        if self._has_events:
            for line in lines:
                self._take_event(line)
            return
        self.log.add(data)
        self.written.add(data)
        for line in lines[-_MAX_PROGRESS_AT_ONCE:]:  # more would be unreadable
            self._report(line.decode("utf-8", "replace"))

    def _take_event(self, line: bytes) -> None:
        try:
            event = _SessionEvent.model_validate_json(line)
        except ValidationError:
            self.log.add(line + b"\n")  # printed by another program
            return
        if event.progress is not None:
            self.log.add(event.progress.encode() + b"\n")
            self._report(event.progress)
        self.stated = self.stated.model_copy(update={name: getattr(event, name) for name in event.model_fields_set})

    def _report(self, text: str) -> None:
        if shown := _shown(text):
            self._on_progress(shown)


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
