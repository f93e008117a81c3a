"""The four kinds of mutations: each changes the files of a staged change."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from evolverpc_common.git import GitError
from evolverpc_common.shielded import to_the_end
from protocol import Candidate
from protocol.code import branch_of
from protocol.errors import ProgramFailed
from protocol.mutation import ChangeRequest, Merge, Mutation, Patch, Texts
from rpc_server.jail.jail import TMP, Jail
from rpc_server.mutations.agents import Agent, AgentFailed, Task
from rpc_server.mutations.prompt import MAX_PAST, change_prompt, conflict_prompt
from rpc_server.mutations.publishing import OF_CHANGE_REQUESTS
from rpc_server.mutations.rejection import Attempt, rejected
from rpc_server.program.open_program import open_program
from rpc_server.program.program import WRITE_TEXTS
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.environments import Environment
from rpc_server.worktrees.repository import Repository
from rpc_server.worktrees.staged_change import Draft, LentFiles, Untakeable
from rpc_server.worktrees.worktree import Tree, environment_in, furnish, settings_in

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


_NOTES = ("AGENTS.md", "CLAUDE.md")
_FIRST_MEMBER = re.compile(r'\s*\{\r?\n([ \t]+)"')


@dataclass(frozen=True)
class Editor:
    """Makes mutations in drafts; what runs in them, in a jail where there is one."""

    repository: Repository
    settings: Settings
    agent: Agent
    jail: Jail | None = None

    async def edit(self, draft: Draft, mutation: Mutation, before: Before, attempt: Attempt, told: Told) -> str:
        """Do what is asked for; what was done, in words. `attempt` gets to know what an agent cost.

        Raises:
            MutationRejected: stage `edit`, `agent`, `empty`, or `paths` and `size` for what an agent left.
        """
        bench = Workbench(self.settings, self.repository.prefix, draft, before, self.jail)
        if isinstance(mutation, ChangeRequest):
            notes = await to_the_end(self._notes, before.commit)
            prompt = change_prompt(mutation, notes=notes, settings=self.settings)
            return await bench.have_changed(self.agent, prompt, attempt, told)
        if isinstance(mutation, Patch):
            return await self._patch(draft, mutation, told)
        if isinstance(mutation, Texts):
            return await self._texts(draft, mutation, before, bench, told)
        return await self._merge(draft, mutation, bench, attempt, told)

    async def _patch(self, draft: Draft, patch: Patch, told: Told) -> str:
        told("applying the patch")
        size, allowed = len(patch.diff.encode()), self.settings.max_diff_bytes
        if size > allowed:
            raise rejected("size", f"the patch has {size} bytes, {allowed} are allowed")
        try:
            await to_the_end(draft.apply_patch, patch.diff)
        except GitError as error:
            raise rejected("edit", f"the patch does not apply: {error}") from None
        return "Applied the patch as it was given."

    async def _texts(self, draft: Draft, texts: Texts, before: Before, bench: Workbench, told: Told) -> str:
        told("writing the texts")
        unknown = sorted(texts.texts.keys() - before.seed.keys())
        if unknown:
            known = ", ".join(before.seed) or "none"
            raise rejected("edit", f"the program has no component {unknown[0]!r:.100}; it has {known}")
        if isinstance(self.settings.seed_candidate, Path):
            await to_the_end(self._write_seed, draft, self.settings.seed_candidate, texts.texts)
        elif not await bench.have_written(texts.texts):
            raise rejected(
                "edit",
                "the program does not say where it keeps its texts: let the setting `seed_candidate` be a JSON file of "
                "its repository, or give it a function `write_texts(candidate)`; or change them by a change request",
            )
        return f"Wrote the texts of {', '.join(sorted(texts.texts))}."

    def _write_seed(self, draft: Draft, seed: Path, texts: Mapping[str, str]) -> None:
        """The texts into the JSON file they come from, with as little else changed as can be."""
        relative = os.path.relpath(self.settings.root / seed, self.settings.root)
        path = os.path.normpath(os.path.join(self.repository.prefix, relative))  # noqa: PTH118  # git's own notation
        content = None if path.startswith("../") else draft.content(path)
        if content is None:
            raise rejected("edit", f"{seed} is no file of the repository, so no commit can hold its texts")
        text = content.decode()
        first = _FIRST_MEMBER.match(text)
        written = json.dumps(
            {**json.loads(text), **texts}, ensure_ascii=text.isascii(), indent=first[1] if first else None
        )
        try:
            draft.write(path, (written + ("\n" if text.endswith("\n") else "")).encode())
        except GitError as error:
            raise rejected("edit", f"cannot write {path}: {error}") from None

    async def _merge(self, draft: Draft, merge: Merge, bench: Workbench, attempt: Attempt, told: Told) -> str:
        told("merging")
        try:
            if await to_the_end(draft.has_the_other):
                raise rejected("empty", "the other candidate's code is part of this one's already")
            conflicts = await to_the_end(draft.merge)
        except GitError as error:
            raise rejected("edit", f"git cannot merge them: {error}") from None
        if not conflicts:
            return f"Merged {branch_of(merge.other)}; git found no conflicts."
        ours, theirs = await to_the_end(draft.subjects, OF_CHANGE_REQUESTS, MAX_PAST)
        prompt = conflict_prompt(conflicts, ours=ours, theirs=theirs, settings=self.settings)
        summary = await bench.have_changed(self.agent, prompt, attempt, told)
        left = await to_the_end(draft.conflicted, conflicts)
        if left:
            raise rejected("edit", f"{self.agent.name} left conflict markers in {', '.join(map(repr, left)):.500}")
        return summary

    def _notes(self, commit: str) -> dict[str, str]:
        """What the program's repository tells agents, text by path."""
        folders = dict.fromkeys(("", self.repository.prefix))
        paths = [str(PurePosixPath(folder) / name) for folder in folders for name in _NOTES]
        found = {path: self.repository.read(commit, path) for path in paths}
        return {path: content.decode("utf-8", "replace") for path, content in found.items() if content is not None}
