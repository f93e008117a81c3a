"""Instances of commits: worktrees with a running program, in an LRU pool."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.git import GitError
from evolverpc_common.shielded import await_shielded, run_shielded
from protocol import Candidate
from protocol.errors import ProgramFailed, UnknownCandidate
from rpc_server.jail.jail import JailFactory
from rpc_server.program.open_program import open_program
from rpc_server.program.program import Program
from rpc_server.program.scheduler import StartTimedOut
from rpc_server.settings import Settings
from rpc_server.worktrees.candidates import check_names
from rpc_server.worktrees.environments import CommitEnvironments, Environment
from rpc_server.worktrees.repository import UserRepository
from rpc_server.worktrees.server_folder import ServerFolder, remove
from rpc_server.worktrees.worktree import Worktree, prepare_worktree, worktree_settings

_NO_FOLDER = Path(os.devnull)
"""The folders of a commit that cannot run, of which nothing stays on disk."""


@dataclass(frozen=True)
class Instance:
    """A commit's worktree with its running program, or the candidate's fault why it cannot start."""

    worktree: Worktree
    program: Program | None
    failed: ProgramFailed | None = None

    @property
    def seed(self) -> Candidate:
        """Return the program's own seed texts. Raises `ProgramFailed` if there is no program."""
        return self.running().info.seed_candidate

    def running(self) -> Program:
        """Return the program. Raises `ProgramFailed` if it does not start."""
        if self.program is None:
            raise copy(self.failed) if self.failed is not None else ProgramFailed(stage="start")
        return self.program


class _PoolEntry:
    """One instance, existing or being created. `users`: how many hold or wait for it. `ending`: what closes it."""

    def __init__(self, creation: "asyncio.Future[Instance]") -> None:
        self.creation = creation
        self.users = 0
        self.ending: asyncio.Task[None] | None = None

    @property
    def exists(self) -> bool:
        """Whether it was created."""
        return self.creation.done() and not self.creation.cancelled() and self.creation.exception() is None


class InstancePool:
    """Instances of a repository's commits, created on first use; the least recently used idle one is evicted.

    At most `settings.max_trees` exist, those being closed included. An instance in use is never evicted: if all are in
    use, the next request waits, so a task that waits must hold none. A creation that no task waits for is cancelled.
    Instances made by `create_from` are beyond that bound until they are added; `settings.max_mutations` bounds them.
    """

    def __init__(
        self,
        repository: UserRepository,
        settings: Settings,
        state: ServerFolder,
        environments: CommitEnvironments,
        jails: JailFactory | None = None,
    ) -> None:
        self.repository = repository
        self.jails = jails
        self.settings = settings
        self.state = state
        self._environments = environments
        self._entries: OrderedDict[str, _PoolEntry] = OrderedDict()
        self._changed = asyncio.Event()
        self._closed = False

    @asynccontextmanager
    async def acquire(self, commit: str) -> AsyncIterator[Instance]:
        """Hold the instance of a commit while the block runs, which may acquire no other.

        What its creation raises, every task that waits for it raises; the next request creates it again.

        Raises:
            UnknownCandidate: the repository has no such commit; with `commit`.
            ProgramFailed: an infrastructure failure, `retryable`; the commit's own is in `Instance.failed`.
        """
        entry = await self._take(commit)
        try:
            await asyncio.wait([entry.creation])  # a cancelled waiter does not cancel the creation
            if entry.creation.cancelled():
                raise _shutting_down()
            yield entry.creation.result()
        finally:
            entry.users -= 1
            if entry.ending is None:
                self._entries.move_to_end(commit)
                if not entry.users and not entry.exists:
                    self._end(commit, entry)
            self._changed.set()

    async def add(self, instance: Instance) -> None:
        """Add an instance made by `create_from`, whose commit is in the repository now; evict an idle one for it.

        It is closed at once if there is one of its commit, or all are in use. Must not be cancelled; takes at most as
        long as closing another instance.
        """
        commit = instance.worktree.commit
        while not self._closed and commit not in self._entries:
            if self._has_room():
                made: asyncio.Future[Instance] = asyncio.get_running_loop().create_future()
                made.set_result(instance)
                self._entries[commit] = _PoolEntry(made)
                self._changed.set()
                return
            if not self._is_ending_one():
                break
            await self._change()
        await self.close_instance(instance)

    async def close_instance(self, instance: Instance) -> None:
        """End its program and remove its files."""
        if instance.program is not None:  # otherwise nothing of it exists
            await instance.program.close()
            await run_shielded(remove, instance.worktree.folder)

    async def close(self) -> None:
        """Close all instances, in use or not."""
        self._closed = True
        self._changed.set()
        ending = [entry.ending or self._end(commit, entry) for commit, entry in self._entries.items()]
        if ending:
            await asyncio.wait(ending)

    async def _take(self, commit: str) -> _PoolEntry:
        while not self._closed:
            entry = self._entries.get(commit)
            if entry is None and self._has_room():
                entry = self._entries[commit] = _PoolEntry(asyncio.ensure_future(self._create(commit)))
            if entry is not None and entry.ending is None:
                entry.users += 1
                self._entries.move_to_end(commit)
                return entry
            await self._change()
        raise _shutting_down()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _is_ending_one(self) -> bool:
        return any(entry.ending is not None for entry in self._entries.values())

    def _has_room(self) -> bool:
        """Report whether another instance fits; if not, evict an idle one, unless one is being closed already."""
        if len(self._entries) < self.settings.max_trees:
            return True
        if not self._is_ending_one():
            idle = next((commit for commit, entry in self._entries.items() if not entry.users), None)
            if idle is not None:
                self._end(idle, self._entries[idle])
        return False

    def _end(self, commit: str, entry: _PoolEntry) -> "asyncio.Task[None]":
        """Return the task that ends an instance: it cancels the creation, or closes what was created."""

        async def end() -> None:
            try:
                if entry.creation.cancel():
                    await asyncio.wait([entry.creation])
                if entry.exists:
                    await self.close_instance(entry.creation.result())
            finally:
                del self._entries[commit]
                self._changed.set()

        entry.ending = asyncio.ensure_future(end())
        return entry.ending

    async def _create(self, commit: str) -> Instance:
        if not await run_shielded(self.repository.has, commit):
            raise UnknownCandidate(f"there is no commit {commit} here", commit=commit)
        try:
            return await self.create_from(commit, None, lambda _: None)
        except StartTimedOut as error:
            error.retryable = True  # it started in time on the server that made the commit
            raise
        except ProgramFailed as error:
            if error.retryable:
                raise
            if error.details.get("stage") == "environment":
                error.retryable = True  # it was built on the server that made the commit
                raise
            return Instance(Worktree(commit, _NO_FOLDER, _NO_FOLDER, _NO_FOLDER, Environment()), None, error)

    async def create_from(self, commit: str, objects: Path | None, on_progress: Callable[[str], None]) -> Instance:
        """Create an instance of a commit, which may be in `objects` only; the caller adds or closes it.

        Raises:
            ProgramFailed: it cannot be created, or its program does not start; nothing of it is left.
        """
        folder = self.state.new_folder("trees")
        async with AsyncExitStack() as undo:
            undo.push_async_callback(run_shielded, remove, folder)
            worktree = await self._create_worktree(commit, folder, objects, on_progress)
            on_progress("starting the program")
            program = await open_program(
                worktree_settings(self.settings, worktree), digest_of=self.settings, jail=worktree.jail
            )
            undo.push_async_callback(lambda: await_shielded(program.close()))
            check_names(program.info.seed_candidate)
            undo.pop_all()
        return Instance(worktree, program)

    async def _create_worktree(
        self, commit: str, folder: Path, objects: Path | None, on_progress: Callable[[str], None]
    ) -> Worktree:
        files, scratch = folder / "files", folder / "scratch"
        try:
            await run_shielded(self.repository.check_out, commit, files, objects)
            scratch.mkdir()
        except (GitError, OSError) as error:
            raise ProgramFailed(
                f"the files of {commit} cannot be written: {error}", stage="files", retryable=True
            ) from error
        root = files / self.repository.prefix
        if not root.is_dir():
            raise ProgramFailed(f"there is no folder {self.repository.prefix} in {commit}", stage="files", log_tail="")
        on_progress("installing what it needs")
        environment = await self._environments.of(commit, objects)
        jail = None if self.jails is None else self.jails.jail(folder)
        worktree = Worktree(commit, folder, root, scratch, environment, jail)
        if self.settings.build_command is not None:
            on_progress("building")
        await prepare_worktree(self.settings, files, worktree)
        return worktree


def _shutting_down() -> ProgramFailed:
    return ProgramFailed("the server is shutting down", stage="close", retryable=True)
