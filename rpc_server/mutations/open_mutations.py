"""From settings to mutations, and what must hold before any is asked for."""

import asyncio
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from evolverpc_common.git import GitError
from evolverpc_common.shielded import to_the_end
from protocol.errors import ProgramFailed
from rpc_server.commands.run import run_command
from rpc_server.mutations.agents import agent_from
from rpc_server.mutations.rules import Rules
from rpc_server.mutations.transaction import TreeMutations
from rpc_server.settings.config_file import SettingsError
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.instances import Trees
from rpc_server.worktrees.repository import Repository
from rpc_server.worktrees.staged_change import Draft
from rpc_server.worktrees.worktree import Tree, environment_in

_NEEDED = (2, 38)
"""The first git that merges without a working tree."""


async def open_mutations(trees: Trees) -> TreeMutations:
    """Mutations of these trees, as their settings have them.

    Raises:
        SettingsError: git is too old, there is no such remote or agent, or a glob cannot be read.
    """
    settings = trees.settings
    rules = Rules.of(settings, trees.repository.prefix)
    agent = agent_from(settings.model_copy(update={"agent_command": _agent_command(settings)}))
    await asyncio.to_thread(_check_git, trees.repository, settings.push)
    return TreeMutations(trees, agent, rules)


async def try_out(trees: Trees, commit: str) -> None:
    """Make sure that changes of this commit can come to something: the agent is there, and the check passes as it is.

    Raises:
        SettingsError: there is no such agent, or the check fails on the commit itself.
        ProgramFailed: the commit cannot be made ready.
    """
    settings = trees.settings
    async with trees.at(commit) as ready:
        environment = environment_in(settings, ready.tree)
        _check_agent(settings, environment)
        if settings.check_command is None:
            return
        draft = Draft(trees.repository, trees.state.new_folder("drafts"), commit)
        try:
            await to_the_end(draft.open)
            await _check_passes(settings, settings.check_command, draft, ready.tree, environment)
        finally:
            await to_the_end(draft.close)


async def _check_passes(
    settings: Settings, command: tuple[str, ...], draft: Draft, tree: Tree, environment: Mapping[str, str]
) -> None:
    files = tree.folder / "files"
    before = await to_the_end(draft.differing, files)  # what the build changed, as it does in every tree
    try:
        await run_command(
            command,
            folder=tree.root,
            environment=environment,
            timeout_s=settings.check_timeout_s,
            stage="check",
            cell=tree.cell,
        )
    except ProgramFailed as error:
        log = str(error.details["log_tail"]).rstrip()
        output = "".join(f"\n    {line}" for line in log.splitlines())
        raise SettingsError(
            f"`check_command` fails on the code as it is, so every change would be rejected: {error.message}"
            + (f"\n  its output:{output}" if output else "")
        ) from None
    changed = sorted(set(await to_the_end(draft.differing, files)) - set(before))
    if changed:
        names = ", ".join(map(repr, changed))
        raise SettingsError(f"`check_command` changes files, so every change would be rejected: {names:.500}")


def _agent_command(settings: Settings) -> tuple[str, ...] | None:
    """With paths as they are from `root`, for it is run elsewhere: the command itself, and words that lead out of it.

    Other words may name files that the agent is to find in the tree.
    """
    if settings.agent_command is None:
        return None
    name, *words = settings.agent_command
    own = _from_root(settings, name) if os.sep in name else name
    return (own, *(_from_root(settings, word) if _leads_out(word) else word for word in words))


def _check_agent(settings: Settings, environment: Mapping[str, str]) -> None:
    command = _agent_command(settings)
    if settings.agent_command is None or command is None:
        return
    for word in (word for word in settings.agent_command[1:] if _leads_out(word)):
        if not Path(_from_root(settings, word)).exists():
            raise SettingsError(f"`agent_command`: there is no {word} in {settings.root}")
    if shutil.which(command[0], path=environment.get("PATH")) is not None:
        return
    name = settings.agent_command[0]
    if os.sep not in name:
        raise SettingsError(f"`agent_command`: there is no command {name!r} on PATH")
    if Path(command[0]).is_file():
        raise SettingsError(f"`agent_command`: {name} in {settings.root} cannot be executed: chmod +x {name}")
    raise SettingsError(f"`agent_command`: there is no {name} in {settings.root}")


def _from_root(settings: Settings, path: str) -> str:
    return os.path.normpath(settings.root.absolute() / path)


def _leads_out(word: str) -> bool:
    return word.startswith(f"..{os.sep}")


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
