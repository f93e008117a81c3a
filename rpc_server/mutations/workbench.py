"""A draft's files in a folder where an agent, or the program itself, may change them."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.git import GitError
from evolverpc_common.shielded import to_the_end
from protocol import Candidate
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import TMP, Jail
from rpc_server.mutations.agents import Agent, AgentFailed, Task
from rpc_server.mutations.rejection import Attempt, rejected
from rpc_server.program.open_program import open_program
from rpc_server.program.program import WRITE_TEXTS
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.draft import Draft
from rpc_server.worktrees.environments import Environment
from rpc_server.worktrees.lent import LentFiles, Untakeable
from rpc_server.worktrees.tree import Tree, environment_in, furnish, settings_in

Told = Callable[[str], None]
"""Hears what is being done, in a few words."""

_NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Files that are no part of a change, in trees whose `.gitignore` does not name them."""


@dataclass(frozen=True)
class Before:
    """The parent as it runs: its commit, the texts its program starts from itself, and what is installed for it."""

    commit: str
    seed: Candidate
    environment: Environment


class Workbench:
    """Where the files of a draft are changed. Whatever ran there has ended when a method returns or raises.

    Every method raises `MutationRejected`, stage `agent`, `edit`, `paths` or `size`.
    """

    def __init__(self, settings: Settings, prefix: str, draft: Draft, before: Before, jail: Jail | None = None) -> None:
        self._jail = jail
        self._settings = settings.model_copy(update={"build_command": None})
        self._prefix = prefix
        self._draft = draft
        self._before = before

    async def have_changed(self, agent: Agent, prompt: str, attempt: Attempt, told: Told) -> str:
        """Have an agent do a task there, and take over what it has done; its last words."""
        lent, tree, links = await self._lent()
        task = Task(tree.folder, prompt, self._environment(tree), tree.cell)
        told(f"{agent.name} is at work")
        try:
            done = await agent.work(task, told)
        except AgentFailed as error:
            attempt.charge(error.usage)
            attempt.killed += error.killed
            raise rejected("agent", error.reason, log_tail=error.log_tail) from error
        attempt.charge(done.usage)
        told("looking at what has changed")
        try:
            await to_the_end(lent.take_back, self._settings.max_diff_bytes, links)
        except Untakeable as error:
            raise rejected("size" if error.too_large else "paths", error.reason) from error
        return done.summary

    async def have_written(self, texts: Candidate) -> bool:
        """Have the program write these texts to where it keeps them, and take over its files; False where it cannot."""
        _, tree, _ = await self._lent()
        settings = settings_in(self._settings, tree)
        settings = settings.model_copy(update={"env": {**settings.env, **_NO_BYTECODE}})
        try:
            program = await open_program(settings, cell=tree.cell)
            try:
                if WRITE_TEXTS not in program.capabilities:
                    return False
                answer = await program.call(WRITE_TEXTS, {"candidate": {**self._before.seed, **texts}})
            finally:
                await program.close()
        except ProgramFailed as error:
            log = error.details.get("log_tail")
            reason = f"the program could not write its texts: {error.message}"
            raise rejected("edit", reason, log_tail=log if isinstance(log, str) else None) from error
        files = answer.get("files")
        if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
            raise rejected("edit", f"the program's answer to {WRITE_TEXTS}: files is not a list of paths")
        for file in files:
            await to_the_end(self._take, tree, file)
        return True

    def _take(self, tree: Tree, file: str) -> None:
        path = Path(os.path.normpath(tree.root / file))
        real = Path(os.path.realpath(path))
        top = Path(os.path.realpath(tree.folder))
        if not real.is_relative_to(top) or not real.is_file():
            raise rejected("edit", f"the program says that it has written {file!r}, which is no file of its repository")
        size, inside = real.stat().st_size, real.relative_to(top).as_posix()
        if size > self._settings.max_diff_bytes + len(self._draft.content(inside) or b""):
            raise rejected("size", f"{file!r} has {size} bytes now")
        try:
            self._draft.write(inside, real.read_bytes())
        except GitError as error:
            raise rejected("edit", f"{file!r}, which the program wrote, cannot be kept: {error}") from None

    async def _lent(self) -> tuple[LentFiles, Tree, list[Path]]:
        """The files, as a tree to run things in, and the links in it that are not the draft's."""
        lent = await to_the_end(self._draft.lend)
        folder = lent.folder
        scratch = folder.parent / "scratch"
        scratch.mkdir()
        # The repository there borrows objects from beside it.
        cell = None if self._jail is None else self._jail.cell(folder, readable=(folder.parent,))
        tree = Tree(self._before.commit, folder, folder / self._prefix, scratch, self._before.environment, cell)
        places = [tree.root / name for name in (*self._settings.links, "node_modules")]
        links = [place for place in places if not place.is_symlink()]
        await furnish(self._settings, tree)
        return lent, tree, links

    def _environment(self, tree: Tree) -> Mapping[str, str]:
        """That of commands in the tree, in which git knows nothing but the lent repository."""
        inherited = environment_in(self._settings, tree)
        outside = tree.folder.parent
        private = outside if tree.cell is None else TMP
        return {
            **{name: value for name, value in inherited.items() if not name.startswith("GIT_")},
            **_NO_BYTECODE,
            "GIT_CEILING_DIRECTORIES": str(outside),
            "GIT_CONFIG_GLOBAL": str(private / "gitconfig"),  # what it sets for itself is gone with the folder
        }
