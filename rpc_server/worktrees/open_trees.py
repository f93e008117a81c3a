"""From settings to a program over trees."""

import resource
from dataclasses import dataclass

from evolverpc_common.shielded import to_the_end
from rpc_server.jail.jail import Jail
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.environments import Environments
from rpc_server.worktrees.program import TreesProgram
from rpc_server.worktrees.ready import Trees
from rpc_server.worktrees.repository import Repository
from rpc_server.worktrees.state import State, cache_folder, home_of
from rpc_server.worktrees.tree import check_links
from rpc_server.worktrees.uncommitted import explained

OPEN_FILES = 10_240
"""What the server allows itself, where the system lets it."""


@dataclass(frozen=True)
class LeftOut:
    """What of the user's folder is not in the trees: changes that are not committed, and submodules' files.

    `untracked`: how many files and folders git knows nothing of, and is not to ignore. `filters`: those of git, which
    are not run, that files of the user's pass through.
    """

    branch: str
    commit: str
    changed: list[str]
    submodules: list[str]
    untracked: int
    filters: list[str]


async def open_trees(settings: Settings, jail: Jail | None = None) -> tuple[TreesProgram, LeftOut]:
    """Start the program of the commit that is checked out, in a tree of its own, jailed or not. Close it when done.

    Raises:
        SettingsError: there is no repository, or what the settings say of it cannot be.
        ProgramFailed: it cannot start.
    """
    repository = await to_the_end(Repository, settings.root)
    branch, commit = await to_the_end(repository.head)
    tracked = await to_the_end(repository.files, commit)
    check_links(settings, tracked, repository.prefix)
    left_out = LeftOut(
        branch,
        commit,
        await to_the_end(repository.changed),
        await to_the_end(repository.submodules, commit),
        await to_the_end(repository.untracked),
        await to_the_end(repository.filters, commit),
    )
    tree_dir = None if settings.tree_dir is None else settings.root / settings.tree_dir
    state = State(home_of(repository.git_dir, tree_dir))
    cache = cache_folder()
    if jail is not None:
        jail = jail.knowing(
            hidden=(state.folder.parent, cache / "trees"),
            readable=(settings.root, repository.top, repository.git_dir, cache / "environments"),
        )
    environments = await to_the_end(Environments, repository, settings, commit, cache, jail)
    try:
        await to_the_end(state.open)
        await to_the_end(state.sweep)
        if state.alone:
            await to_the_end(repository.sweep)
        await to_the_end(environments.sweep)
        _allow_open_files()
        trees = Trees(repository, settings, state, environments, jail)
        try:
            async with trees.at(commit) as seed:
                if seed.failed is not None:
                    raise explained(seed.failed, settings, set(tracked), repository.prefix, state.folder)
                return TreesProgram(trees, seed, branch), left_out
        except BaseException:
            await trees.close()
            raise
    except BaseException:
        await to_the_end(state.close)
        raise


def _allow_open_files() -> None:
    """Each of many processes is talked to through several; what is usual allows for about a thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
