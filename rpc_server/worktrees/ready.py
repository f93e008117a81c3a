"""Commits that are ready to run: each a tree with its program, made when first asked for and put away when unused."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.git import GitError
from evolverpc_common.shielded import all_of, to_the_end
from protocol import Candidate
from protocol.errors import ProgramFailed, UnknownCandidate
from rpc_server.jail.jail import Jail
from rpc_server.program.open_program import open_program
from rpc_server.program.program import Program
from rpc_server.program.starting import StartTimedOut
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.candidates import check_names
from rpc_server.worktrees.environments import Environment, Environments
from rpc_server.worktrees.leases import Closed, Leases
from rpc_server.worktrees.repository import Repository
from rpc_server.worktrees.state import State
from rpc_server.worktrees.tree import Tree, furnish, settings_in

_NOWHERE = Path(os.devnull)


@dataclass(frozen=True)
class Ready:
    """A commit's tree with its program, or why that cannot start, which is the candidate's fault."""

    tree: Tree
    program: Program | None
    failed: ProgramFailed | None = None

    @property
    def seed(self) -> Candidate:
        """The texts its program starts from itself. Raises `ProgramFailed` where there is no program."""
        return self.running().info.seed_candidate

    def running(self) -> Program:
        """The program. Raises `ProgramFailed` where it does not start."""
        if self.program is None:
            raise copy(self.failed) if self.failed is not None else ProgramFailed(stage="start")
        return self.program


class Trees:
    """Commits of a repository, ready to run: at most `settings.max_trees` of them at a time.

    What `ready_from` makes is beyond that until it is kept: `settings.max_mutations` at most are under way at a time.
    """

    def __init__(
        self,
        repository: Repository,
        settings: Settings,
        state: State,
        environments: Environments,
        jail: Jail | None = None,
    ) -> None:
        self.repository = repository
        self.jail = jail
        self.settings = settings
        self.state = state
        self._environments = environments
        self._leases = Leases(self._made, self.put_away, settings.max_trees)

    @asynccontextmanager
    async def at(self, commit: str) -> AsyncIterator[Ready]:
        """A commit of the repository, ready as long as the block runs; in which no other may be asked for.

        Raises:
            UnknownCandidate: the repository has no such commit; with `commit`.
            ProgramFailed: nobody's fault, it is `retryable`; what is the commit's own is in `Ready.failed`.
        """
        try:
            async with self._leases.of(commit) as ready:
                yield ready
        except Closed:
            raise ProgramFailed("the server is shutting down", stage="close", retryable=True) from None

    async def keep(self, ready: Ready) -> None:
        """Take over what `ready_from` made, its commit being in the repository now; put away where all are in use.

        Not to be cancelled: it takes as long as another commit's end does, at most.
        """
        await self._leases.keep(ready.tree.commit, ready)

    async def ready_from(self, commit: str, objects: Path, told: Callable[[str], None]) -> Ready:
        """A tree of a commit that is in `objects` only, its program started; to be kept or put away.

        Raises:
            ProgramFailed: it cannot be made ready, or its program does not start; nothing of it is left.
        """
        return await self._ready(commit, objects, told)

    async def put_away(self, ready: Ready) -> None:
        """End its program and remove its files."""
        if ready.program is not None:  # else nothing of it was kept
            await ready.program.close()
            await to_the_end(self.state.remove, ready.tree.folder)

    async def close(self) -> None:
        """Put them all away."""
        await self._leases.close()

    async def _made(self, commit: str) -> Ready:
        if not await to_the_end(self.repository.has, commit):
            raise UnknownCandidate(f"there is no commit {commit} here", commit=commit)
        try:
            return await self._ready(commit, None, _silent)
        except StartTimedOut as error:
            error.retryable = True  # it did start in time where the commit was made
            raise
        except ProgramFailed as error:
            if error.retryable:
                raise
            if error.details.get("stage") == "environment":
                error.retryable = True  # it was built where the commit was made: what is missing is missing here
                raise
            return Ready(_nowhere(commit), None, error)

    async def _ready(self, commit: str, objects: Path | None, told: Callable[[str], None]) -> Ready:
        """Made from nothing, of which nothing is left where it fails or is cancelled."""
        folder = self.state.new_folder("trees")
        try:
            tree = await self._tree(commit, folder, objects, told)
            told("starting the program")
            program = await open_program(settings_in(self.settings, tree), known_by=self.settings, cell=tree.cell)
            try:
                check_names(program.info.seed_candidate)
            except BaseException:
                await all_of(program.close())
                raise
        except BaseException:
            await to_the_end(self.state.remove, folder)
            raise
        return Ready(tree, program)

    async def _tree(self, commit: str, folder: Path, objects: Path | None, told: Callable[[str], None]) -> Tree:
        files, scratch = folder / "files", folder / "scratch"
        try:
            await to_the_end(self.repository.check_out, commit, files, objects)
            scratch.mkdir()
        except (GitError, OSError) as error:
            raise ProgramFailed(
                f"the files of {commit} cannot be written: {error}", stage="files", retryable=True
            ) from error
        root = files / self.repository.prefix
        if not root.is_dir():
            raise ProgramFailed(f"there is no folder {self.repository.prefix} in {commit}", stage="files", log_tail="")
        told("installing what it needs")
        environment = await self._environments.of(commit, objects)
        cell = None if self.jail is None else self.jail.cell(folder)
        tree = Tree(commit, folder, root, scratch, environment, cell)
        if self.settings.build_command is not None:
            told("building")
        await furnish(self.settings, tree)
        return tree


def _nowhere(commit: str) -> Tree:
    """Of a commit that cannot run nothing is kept on disk."""
    return Tree(commit, _NOWHERE, _NOWHERE, _NOWHERE, Environment())


def _silent(_message: str) -> None:
    return
