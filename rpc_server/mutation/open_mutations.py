"""From settings to mutations."""

import asyncio
import re

from rpc_server.config import SettingsError
from rpc_server.mutation.agents import agent_from
from rpc_server.mutation.mutations import TreeMutations
from rpc_server.mutation.rules import Rules
from rpc_server.trees.git import GitError
from rpc_server.trees.ready import Trees
from rpc_server.trees.repository import Repository

_NEEDED = (2, 38)
"""The first git that merges without a working tree."""


async def open_mutations(trees: Trees) -> TreeMutations:
    """Mutations of these trees, as their settings have them.

    Raises:
        SettingsError: git is too old, there is no such remote or agent, or a glob cannot be read.
    """
    settings = trees.settings
    rules = Rules.of(settings, trees.repository.prefix)
    agent = agent_from(settings)
    await asyncio.to_thread(_check_git, trees.repository, settings.push)
    return TreeMutations(trees, agent, rules)


def _check_git(repository: Repository, remote: str | None) -> None:
    said = repository.git.line("version")
    version = re.search(r"(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < _NEEDED:
        raise SettingsError(f"`allow_mutations` needs git {_NEEDED[0]}.{_NEEDED[1]} or newer; this is {said}")
    if remote is not None:
        try:
            repository.git.line("remote", "get-url", remote)
        except GitError as error:
            raise SettingsError(f"`push`: {error}") from None
