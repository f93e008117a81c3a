"""Instances of commits: worktrees with a running program, in an LRU pool."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from evolverpc_common.git import GitError
from evolverpc_common.shielded import all_of, to_the_end
from protocol import Candidate
from protocol.errors import ProgramFailed, UnknownCandidate
from rpc_server.jail.jail import Jail
from rpc_server.program.open_program import open_program
from rpc_server.program.process_factory import StartTimedOut
from rpc_server.program.program import Program
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.candidates import check_names
from rpc_server.worktrees.environments import Environment, Environments
from rpc_server.worktrees.repository import Repository
from rpc_server.worktrees.server_folder import State
from rpc_server.worktrees.worktree import Tree, furnish, settings_in

T = TypeVar("T")


class Closed(Exception):
    """Nothing is made any more."""


class _Held(Generic[T]):
    """One thing, there or being made. `users`: how many hold or wait for it."""

    def __init__(self, making: "asyncio.Future[T]") -> None:
        self.making = making
        self.users = 0


class Leases(Generic[T]):
    """Things by name, made when first asked for; at most `bound` of them at a time, those being unmade included.

    What is in use is never put away: where all are, who asks for another one waits. So whoever waits for one must hold
    no other. `make(name)` and `unmake(thing)` run one at a time for each name; what nobody waits for any more is not
    made to its end.
    """

    def __init__(self, make: Callable[[str], Awaitable[T]], unmake: Callable[[T], Awaitable[None]], bound: int) -> None:
        self._make = make
        self._unmake = unmake
        self._bound = bound
        self._held: OrderedDict[str, _Held[T]] = OrderedDict()
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._waiting = 0
        self._closed = False

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[T]:
        """The thing of this name, kept as long as the block runs.

        Raises what `make` raises, to all who wait for it; then it is not kept, and made anew for who asks next.

        Raises:
            Closed: it is, or is closed meanwhile.
        """
        held = await self._take(name)
        try:
            await asyncio.wait([held.making])  # which our being cancelled leaves as it is
            if held.making.cancelled():
                raise Closed
            yield held.making.result()
        finally:
            held.users -= 1
            self._left(name, held)

    async def keep(self, name: str, thing: T) -> None:
        """Hand over one that was made elsewhere.

        It is unmade at once where there is one of the name already, or all are in use: it can be made again. Otherwise
        something idle makes room, whose end is waited for.
        """
        while not self._closed and name not in self._held and name not in self._ending:
            if self._has_room():
                made: asyncio.Future[T] = asyncio.get_running_loop().create_future()
                made.set_result(thing)
                self._held[name] = _Held(made)
                self._changed.set()
                return
            if not self._ending:
                break
            await self._change()
        await self._unmake(thing)

    async def close(self) -> None:
        """Unmake all that there is, in use or not."""
        self._closed = True
        for name in list(self._held):
            self._put_away(name)
        self._changed.set()
        while self._ending:
            await asyncio.wait(set(self._ending.values()))

    async def _take(self, name: str) -> _Held[T]:
        while True:
            if self._closed:
                raise Closed
            held = self._held.get(name)
            if held is None and name not in self._ending and self._has_room():
                held = self._held[name] = _Held(asyncio.ensure_future(self._make(name)))
            if held is not None:
                held.users += 1
                self._held.move_to_end(name)
                return held
            await self._change()

    async def _change(self) -> None:
        """Wait until there may be room."""
        self._changed.clear()
        self._waiting += 1
        try:
            await self._changed.wait()
        finally:
            self._waiting -= 1

    def _has_room(self) -> bool:
        """Whether another fits; where none does, something idle is put away for each who waits."""
        if len(self._held) + len(self._ending) < self._bound:
            return True
        if len(self._ending) <= self._waiting:
            self._put_away_idle()
        return False

    def _put_away_idle(self) -> bool:
        """Put away what was longest unused; whether anything was."""
        idle = next((name for name, held in self._held.items() if not held.users), None)
        if idle is not None:
            self._put_away(idle)
        return idle is not None

    def _left(self, name: str, held: _Held[T]) -> None:
        """A user is gone, perhaps the last."""
        self._changed.set()
        if self._held.get(name) is not held:
            return  # put away at the close
        if held.making.done() and (held.making.cancelled() or held.making.exception() is not None):
            del self._held[name]
        elif not held.users and not held.making.done():
            self._put_away(name)
        else:
            self._held.move_to_end(name)

    def _put_away(self, name: str) -> None:
        held = self._held.pop(name)
        task = self._ending[name] = asyncio.ensure_future(self._end(held))

        def ended(_: "asyncio.Task[None]") -> None:
            del self._ending[name]
            self._changed.set()

        task.add_done_callback(ended)

    async def _end(self, held: _Held[T]) -> None:
        if not held.making.done():
            held.making.cancel()
            await asyncio.wait([held.making])
        if not held.making.cancelled() and held.making.exception() is None:
            await self._unmake(held.making.result())


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
