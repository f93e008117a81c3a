"""Which agent the settings name."""

import importlib.util

import pytest

from evolverpc_common.settings.sources import SettingsError
from rpc_server.mutations.agents import AgentFailed, agent_from
from rpc_server.settings import CodeChangeSettings
from tests.support.scripted_anthropic import Script, use


async def test_claude_with_its_model_tools_and_limits(workplace, model):
    model.scripts.append(Script("Make it louder.", [[use("Glob", pattern="*")], [use("Glob", pattern="*")]]))
    settings = CodeChangeSettings(
        allow_mutations=True, agent_model="claude-opus-4-1", agent_tools=("Glob",), agent_max_turns=1
    )
    with pytest.raises(AgentFailed, match="the limit of 1 turns was reached"):
        await workplace.work(agent_from(settings))
    assert [(asked.body["model"], asked.tools) for asked in model.asked] == [("claude-opus-4-1", ["Glob"])]


def test_claude_without_its_sdk_names_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", {"claude_agent_sdk": None}.__getitem__)
    with pytest.raises(SettingsError, match=r"pip install '\.\[agent\]' in the folder.*`agent_command`"):
        agent_from(CodeChangeSettings(allow_mutations=True))
