"""Open a program over worktrees from settings."""

import os
from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.open_connections import raise_descriptor_limit
from evolverpc_common.shielded import run_shielded
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import JailFactory
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.environments import CommitEnvironments
from rpc_server.worktrees.instances import InstancePool
from rpc_server.worktrees.repository import UserRepository
from rpc_server.worktrees.server_folder import ServerFolder, cache_folder, servers_folder
from rpc_server.worktrees.worktree import check_links
from rpc_server.worktrees.worktree_program import WorktreeProgram


def add_missing_files(
    error: ProgramFailed, settings: Settings, tracked: Collection[str], prefix: str, server_folder: ServerFolder
) -> ProgramFailed:
    """Return the error, with advice if the program or a file of its command is not committed."""
    missing = [name for name in _named_files(settings) if _is_missing(name, settings, tracked, prefix)]
    if not missing:
        return error
    names, are = " ".join(missing), "is" if len(missing) == 1 else "are"
    advice = f"{names} {are} not committed, and candidates run from commits: git add {names} && git commit"
    message = server_folder.without_paths(error.message)
    details = {name: value for name, value in error.details.items() if name != "message"}
    return ProgramFailed(f"{message}; {advice}", retryable=error.retryable, **details)


def _named_files(settings: Settings) -> list[str]:
    """Return paths, relative to `root`, that may be files of the program; a command's first word may not be."""
    words = [*(settings.command or ())[1:]]
    if settings.program is not None and settings.program.endswith(".py"):
        words.append(settings.program)
    if isinstance(settings.seed_candidate, Path):
        words.append(str(settings.seed_candidate))
    return [os.path.relpath(settings.root / word, settings.root) for word in words]


def _is_missing(name: str, settings: Settings, tracked: Collection[str], prefix: str) -> bool:
    path = Path(name)
    linked = any(path.is_relative_to(link) for link in settings.links)
    outside = path.parts[:1] == ("..",)
    inside = (Path(prefix) / path).as_posix()
    return not linked and not outside and (settings.root / path).is_file() and inside not in tracked


OPEN_FILES = 10_240
"""Descriptors for many processes, each with several pipes."""


@dataclass(frozen=True)
class ExcludedFiles:
    """What of the user's folder is not in worktrees: uncommitted changes and submodules' files.

    `untracked`: the number of untracked files and folders that git does not ignore. `filters`: the user's files that
    pass through filters of git, which do not run, with these.
    """

    branch: str
    commit: str
    changed: list[str]
    submodules: list[str]
    untracked: int
    filters: list[str]


async def open_worktrees(settings: Settings, jails: JailFactory | None = None) -> tuple[WorktreeProgram, ExcludedFiles]:
    """Start the program of the checked-out commit in a worktree of its own. The caller closes it.

    Raises:
        SettingsError: there is no repository, or the settings do not fit it.
        ProgramFailed: it cannot start.
    """
    repository = await run_shielded(UserRepository, settings.root)
    branch, commit = await run_shielded(repository.head)
    tracked = await run_shielded(repository.files, commit)
    check_links(settings, tracked, repository.prefix)
    excluded = ExcludedFiles(
        branch,
        commit,
        await run_shielded(repository.changed),
        await run_shielded(repository.submodules, commit),
        await run_shielded(repository.untracked),
        await run_shielded(repository.filters, commit),
    )
    tree_dir = None if settings.tree_dir is None else settings.root / settings.tree_dir
    server_folder = ServerFolder(servers_folder(repository.git_dir, tree_dir))
    cache = cache_folder()
    if jails is not None:
        jails = jails.extend(
            hidden=(server_folder.folder.parent, cache / "trees"),
            readable=(settings.root, repository.top, repository.git_dir, cache / "environments"),
        )
    environments = await run_shielded(CommitEnvironments, repository, settings, commit, cache, jails)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(run_shielded, server_folder.close)
        await run_shielded(server_folder.open)
        await run_shielded(server_folder.sweep)
        if server_folder.only_server:
            await run_shielded(repository.sweep)
        raise_descriptor_limit(OPEN_FILES)
        instances = InstancePool(repository, settings, server_folder, environments, jails)
        undo.push_async_callback(instances.close)
        async with instances.acquire(commit) as seed:
            if seed.failed is not None:
                raise add_missing_files(seed.failed, settings, set(tracked), repository.prefix, server_folder)
            program = WorktreeProgram(instances, seed, branch)
        undo.pop_all()
        return program, excluded
