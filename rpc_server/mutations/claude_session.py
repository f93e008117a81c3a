"""One session of the Claude agent, a process of its own and the one file that imports claude_agent_sdk.

Started by its path: `python -I claude_session.py`, with `{"folder", "prompt", "model", "tools", "max_turns",
"max_cost_usd"}` as JSON on stdin (`model` and `max_cost_usd` may be null). It writes JSON lines: `{"progress": "Edit
app.py"}`, `{"usage": {...}}` with what is known so far, and as its last one `{"done": SUMMARY, "usage": {...}}` or
`{"failed": REASON, "usage": {...}}`. What the agent's program writes to stderr goes to stderr.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

gc.disable()  # garbage collection takes a sixth of the import's time
from claude_agent_sdk import (  # noqa: E402
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKError,
    ProcessError,
    ResultMessage,
    TextBlock,
    ToolUseBlock,
    query,
)

gc.freeze()  # what was imported is never garbage
gc.enable()

_SHOWN = 200
_SUMMARY = 4_000
_MAX_MESSAGE_BYTES = 64 * 2**20

_ENVIRONMENT = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_ENABLE_TELEMETRY": "0",
    # Its background processes end with its result.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # The server commits, and no later session uses its memory.
    "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # The requested model and tools only.
    "CLAUDE_CODE_DISABLE_LEGACY_MODEL_REMAP": "1",
    "ENABLE_TOOL_SEARCH": "false",
}

_REASONS = {
    "error_max_turns": "the limit of {max_turns} turns was reached",
    "error_max_budget_usd": "the cost limit of ${max_cost_usd} was reached",
}


def main() -> None:
    """Run the task on stdin."""
    task = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="claude-") as private:
        asyncio.run(_run(task, Path(private)))


async def _run(task: dict[str, Any], private: Path) -> None:
    usage = _Usage()
    result = None
    try:
        async for message in query(prompt=task["prompt"], options=_options(task, private)):
            if isinstance(message, AssistantMessage):
                usage.add(message)
                for block in message.content:
                    _emit_block(block, task["folder"])
            elif isinstance(message, ResultMessage):
                result = message
    except ClaudeSDKError as error:
        if result is None:
            _emit(failed=_exit_reason(error), usage=usage.known)
            return
        # Otherwise the result has reported this failure already.
    if result is None:
        _emit(failed="the agent's program ended without a result", usage=usage.known)
    elif result.is_error or result.subtype != "success":
        _emit(failed=_reason(result, task)[:_SUMMARY], usage=_total(result))
    else:
        _emit(done=(result.result or "").strip()[:_SUMMARY], usage=_total(result))


def _options(task: dict[str, Any], private: Path) -> ClaudeAgentOptions:
    environment = {**_ENVIRONMENT, "CLAUDE_CONFIG_DIR": str(private), "CLAUDE_CODE_TMPDIR": str(private)}
    if os.geteuid() == 0:
        environment["IS_SANDBOX"] = "1"  # without it, root may not bypass permissions
    return ClaudeAgentOptions(
        cwd=task["folder"],
        model=task["model"],
        tools=task["tools"],
        allowed_tools=task["tools"],
        max_turns=task["max_turns"],
        max_budget_usd=task["max_cost_usd"],
        permission_mode="bypassPermissions",
        system_prompt={"type": "preset", "preset": "claude_code"},
        setting_sources=[],  # neither the machine's settings nor the worktree's, whose hooks are code
        strict_mcp_config=True,
        skills=[],
        verbatim_prompts=True,  # an `@/path` within a record must not become that file
        max_buffer_size=_MAX_MESSAGE_BYTES,
        env=environment,
    )


class _Usage:
    """The usage before the end: a message arrives in parts, each with the usage known by then."""

    def __init__(self) -> None:
        self._inputs: dict[str, int] = {}

    @property
    def known(self) -> dict[str, int]:
        return {"input_tokens": sum(self._inputs.values()), "calls": len(self._inputs)}

    def add(self, message: AssistantMessage) -> None:
        if message.message_id is not None and message.usage is not None:
            self._inputs[message.message_id] = _input_tokens(message.usage)
            _emit(usage=self.known)


def _total(result: ResultMessage) -> dict[str, Any]:
    usage = result.usage or {}
    return {
        "cost_usd": result.total_cost_usd,
        "input_tokens": _input_tokens(usage),
        "output_tokens": usage.get("output_tokens", 0),
        "calls": result.num_turns,
    }


def _input_tokens(usage: dict[str, Any]) -> int:
    """Count input tokens, with those read from and written to the cache."""
    kinds = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(usage.get(kind) or 0 for kind in kinds)


def _reason(result: ResultMessage, task: dict[str, Any]) -> str:
    if result.subtype in _REASONS:
        return _REASONS[result.subtype].format(**task)
    return "; ".join(result.errors or ()) or result.result or result.subtype


def _exit_reason(error: ClaudeSDKError) -> str:
    status = error.exit_code if isinstance(error, ProcessError) else None
    if status is None:
        return str(error)
    if status < 0:
        return f"the agent's program was killed by {signal.Signals(-status).name}"
    return f"the agent's program exited with status {status}"


def _emit_block(block: object, folder: str) -> None:
    if isinstance(block, TextBlock):
        text = block.text
    elif isinstance(block, ToolUseBlock):
        text = _tool_summary(block, folder)
    else:
        return
    line = " ".join(text[: 4 * _SHOWN].split())[:_SHOWN]
    if line:
        _emit(progress=line)


def _tool_summary(block: ToolUseBlock, folder: str) -> str:
    given = block.input
    if "command" in given:
        return f"{block.name}: {given['command']}"
    subject = str(given.get("file_path") or given.get("path") or given.get("pattern") or "")
    return f"{block.name} {subject.removeprefix(folder.rstrip('/') + '/')}"


def _emit(**event: Any) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main()
