"""Open mutations from settings, and check their prerequisites."""

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from evolverpc_common.git import GitError
from evolverpc_common.settings.sources import SettingsError
from evolverpc_common.shielded import run_shielded
from protocol.errors import ProgramFailed
from rpc_server.mutations.agents import agent_from
from rpc_server.mutations.rules import Rules
from rpc_server.mutations.transaction import CodeMutations, run_check
from rpc_server.settings import Settings
from rpc_server.worktrees.instances import InstancePool
from rpc_server.worktrees.repository import UserRepository
from rpc_server.worktrees.staged_change import StagedChange
from rpc_server.worktrees.worktree import Worktree, worktree_environment

_NEEDED = (2, 38)
"""The first git that merges without a working tree."""


async def open_mutations(instances: InstancePool) -> CodeMutations:
    """Return the mutations of these instances, as their settings configure them.

    Raises:
        SettingsError: git is too old, or the remote or agent does not exist.
    """
    settings = instances.settings
    rules = Rules.of(settings, instances.repository.prefix)
    agent = agent_from(settings.model_copy(update={"agent_command": _agent_command(settings)}))
    await asyncio.to_thread(_check_git, instances.repository, settings.push)
    return CodeMutations(instances, agent, rules)


async def check_prerequisites(instances: InstancePool, commit: str) -> None:
    """Check that mutations of this commit can succeed: the agent exists, and the check passes unchanged.

    Raises:
        SettingsError: there is no such agent, or the check fails on the commit itself.
        ProgramFailed: the commit has no running instance.
    """
    settings = instances.settings
    async with instances.acquire(commit) as instance:
        _check_agent(settings, worktree_environment(settings, instance.worktree))
        if settings.check_command is None:
            return
        staged = StagedChange(instances.repository, instances.state.new_folder("drafts"), commit)
        try:
            await run_shielded(staged.open)
            await _check_passes(settings, staged, instance.worktree)
        finally:
            await run_shielded(staged.close)


async def _check_passes(settings: Settings, staged: StagedChange, worktree: Worktree) -> None:
    try:
        changed = await run_check(settings, staged, worktree)
    except ProgramFailed as error:
        log = str(error.details["log_tail"]).rstrip()
        output = "".join(f"\n    {line}" for line in log.splitlines())
        raise SettingsError(
            f"`check_command` fails on the code as it is, so every change would be rejected: {error.message}"
            + (f"\n  its output:{output}" if output else "")
        ) from None
    if changed:
        raise SettingsError(f"`check_command` changes files, so every change would be rejected: {changed:.500}")


def _agent_command(settings: Settings) -> tuple[str, ...] | None:
    """Return the agent command with paths resolved from `root`: the executable, and words that lead out of it.

    Other words may name files that the agent finds in the worktree.
    """
    if settings.agent_command is None:
        return None
    name, *words = settings.agent_command
    own = _from_root(settings, name) if os.sep in name else name
    return (own, *(_from_root(settings, word) if _is_outside_root(word) else word for word in words))


def _check_agent(settings: Settings, environment: Mapping[str, str]) -> None:
    command = _agent_command(settings)
    if settings.agent_command is None or command is None:
        return
    for word in (word for word in settings.agent_command[1:] if _is_outside_root(word)):
        if not Path(_from_root(settings, word)).exists():
            raise SettingsError(f"`agent_command`: there is no {word} in {settings.root}")
    if shutil.which(command[0], path=environment.get("PATH")) is None:
        name = settings.agent_command[0]
        raise SettingsError(f"`agent_command`: no {name} on PATH or in {settings.root} can be executed")


def _from_root(settings: Settings, path: str) -> str:
    return os.path.normpath(settings.root.absolute() / path)


def _is_outside_root(word: str) -> bool:
    return word.startswith(f"..{os.sep}")


def _check_git(repository: UserRepository, remote: str | None) -> None:
    from git import Git  # a tenth of a second

    version = Git().version_info
    if version < _NEEDED:
        this = ".".join(map(str, version)) or "an unknown version"
        raise SettingsError(f"`allow_mutations` needs git {_NEEDED[0]}.{_NEEDED[1]} or newer; this is {this}")
    if remote is not None:
        try:
            repository.git.line("remote", "get-url", remote)
        except GitError as error:
            raise SettingsError(f"`push`: {error}") from None
