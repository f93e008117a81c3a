"""Open a program over worktrees from settings."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from evolverpc_common.open_connections import raise_descriptor_limit
from evolverpc_common.shielded import run_shielded
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import JailFactory
from rpc_server.settings import Settings
from rpc_server.worktrees.environments import CommitEnvironments
from rpc_server.worktrees.instances import InstancePool
from rpc_server.worktrees.repository import UserRepository
from rpc_server.worktrees.server_folder import ServerFolder, cache_folder, servers_folder
from rpc_server.worktrees.worktree import check_links
from rpc_server.worktrees.worktree_program import WorktreeProgram

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

    def explain(self, error: ProgramFailed, server_folder: ServerFolder) -> ProgramFailed:
        """Return the error of a program that does not start, with advice if a part of it may not be committed."""
        if not self.changed and not self.untracked:
            return error
        message = server_folder.without_paths(error.message)
        details = {name: value for name, value in error.details.items() if name != "message"}
        advice = "candidates run from commits, which lack files and changes of this folder: git add, git commit"
        return ProgramFailed(f"{message}; {advice}", retryable=error.retryable, **details)


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
                raise excluded.explain(seed.failed, server_folder)
            program = WorktreeProgram(instances, seed, branch)
        undo.pop_all()
        return program, excluded
