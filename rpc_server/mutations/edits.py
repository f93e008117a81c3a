"""The four kinds of mutations: each changes the files of a staged change."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from evolverpc_common.git import GitError
from evolverpc_common.shielded import run_shielded
from protocol import Candidate
from protocol.code import branch_of
from protocol.errors import ProgramFailed
from protocol.mutation import ChangeRequest, Merge, Mutation, Patch, Texts
from rpc_server.jail.jail import TMP, JailFactory
from rpc_server.mutations.agent_prompt import MAX_PAST, change_prompt, conflict_prompt
from rpc_server.mutations.agents import Agent, AgentFailed, AgentTask
from rpc_server.mutations.publishing import OF_CHANGE_REQUESTS
from rpc_server.mutations.rejection import MutationDetails, rejected
from rpc_server.program.open_program import open_program
from rpc_server.program.program import WRITE_TEXTS
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.environments import Environment
from rpc_server.worktrees.repository import UserRepository
from rpc_server.worktrees.staged_change import EditableFiles, StagedChange, UncommittableFiles
from rpc_server.worktrees.worktree import Worktree, prepare_worktree, worktree_environment, worktree_settings

OnProgress = Callable[[str], None]
"""Receives the current step, in a few words."""

_NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Keeps bytecode files out of changes whose `.gitignore` does not name them."""


@dataclass(frozen=True)
class ParentInfo:
    """The parent commit as it runs: its program's seed texts, and its environment."""

    commit: str
    seed: Candidate
    environment: Environment


class StagedEditor:
    """Edits the files of a staged change. All processes have ended when a method returns or raises.

    Every method raises `MutationRejected`, stage `agent`, `edit`, `paths` or `size`.
    """

    def __init__(
        self,
        settings: Settings,
        prefix: str,
        staged: StagedChange,
        parent: ParentInfo,
        jails: JailFactory | None = None,
    ) -> None:
        self._jails = jails
        self._settings = settings.model_copy(update={"build_command": None})
        self._prefix = prefix
        self._staged = staged
        self._parent = parent

    async def run_agent(self, agent: Agent, prompt: str, details: MutationDetails, on_progress: OnProgress) -> str:
        """Run an agent on the files and stage what it changed; return its final message."""
        editable, worktree, links = await self._check_out()
        task = AgentTask(worktree.folder, prompt, self._environment(worktree), worktree.jail)
        on_progress(f"{agent.name} is at work")
        try:
            result = await agent.work(task, on_progress)
        except AgentFailed as error:
            details.add_usage(error.usage)
            details.killed += error.killed
            raise rejected("agent", error.reason, log_tail=error.log_tail) from error
        details.add_usage(result.usage)
        on_progress("staging its changes")
        try:
            await run_shielded(editable.collect, self._settings.max_diff_bytes, links)
        except UncommittableFiles as error:
            raise rejected("size" if error.too_large else "paths", error.reason) from error
        return result.summary

    async def write_texts(self, texts: Candidate) -> bool:
        """Let the program write its texts into its files, and stage them; return False if it cannot."""
        _, worktree, _ = await self._check_out()
        settings = worktree_settings(self._settings, worktree)
        settings = settings.model_copy(update={"env": {**settings.env, **_NO_BYTECODE}})
        try:
            program = await open_program(settings, jail=worktree.jail)
            try:
                if WRITE_TEXTS not in program.capabilities:
                    return False
                answer = await program.call(WRITE_TEXTS, {"candidate": {**self._parent.seed, **texts}})
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
            await run_shielded(self._stage_file, worktree, file)
        return True

    def _stage_file(self, worktree: Worktree, file: str) -> None:
        path = Path(os.path.normpath(worktree.root / file))
        real = Path(os.path.realpath(path))
        top = Path(os.path.realpath(worktree.folder))
        if not real.is_relative_to(top) or not real.is_file():
            raise rejected("edit", f"the program reported to have written {file!r}, not a file of its repository")
        size, inside = real.stat().st_size, real.relative_to(top).as_posix()
        if size > self._settings.max_diff_bytes + len(self._staged.content(inside) or b""):
            raise rejected("size", f"{file!r} has {size} bytes now")
        try:
            self._staged.write(inside, real.read_bytes())
        except GitError as error:
            raise rejected("edit", f"{file!r}, which the program wrote, cannot be kept: {error}") from None

    async def _check_out(self) -> tuple[EditableFiles, Worktree, list[Path]]:
        """Write the files to disk; return them, a worktree over them, and the links that are no part of them."""
        editable = await run_shielded(self._staged.check_out_files)
        folder = editable.folder
        scratch = folder.parent / "scratch"
        scratch.mkdir()
        # Its repository borrows objects from the parent folder.
        jail = None if self._jails is None else self._jails.jail(folder, readable=(folder.parent,))
        worktree = Worktree(self._parent.commit, folder, folder / self._prefix, scratch, self._parent.environment, jail)
        places = [worktree.root / name for name in (*self._settings.links, "node_modules")]
        links = [place for place in places if not place.is_symlink()]
        await prepare_worktree(self._settings, worktree)
        return editable, worktree, links

    def _environment(self, worktree: Worktree) -> Mapping[str, str]:
        """Return the environment of commands in the worktree; git finds only its own repository."""
        inherited = worktree_environment(self._settings, worktree)
        outside = worktree.folder.parent
        private = outside if worktree.jail is None else TMP
        return {
            **{name: value for name, value in inherited.items() if not name.startswith("GIT_")},
            **_NO_BYTECODE,
            "GIT_CEILING_DIRECTORIES": str(outside),
            "GIT_CONFIG_GLOBAL": str(private / "gitconfig"),  # removed with the folder
        }


_NOTES = ("AGENTS.md", "CLAUDE.md")
_FIRST_MEMBER = re.compile(r'\s*\{\r?\n([ \t]+)"')


@dataclass(frozen=True)
class MutationEditor:
    """Makes mutations in staged changes; what it runs is jailed if there are jails."""

    repository: UserRepository
    settings: Settings
    agent: Agent
    jails: JailFactory | None = None

    async def edit(
        self,
        staged: StagedChange,
        mutation: Mutation,
        parent: ParentInfo,
        details: MutationDetails,
        on_progress: OnProgress,
    ) -> str:
        """Make the requested change; return a summary. `details` collects what an agent used.

        Raises:
            MutationRejected: stage `edit`, `agent`, `empty`, or `paths` and `size` for an agent's files.
        """
        editor = StagedEditor(self.settings, self.repository.prefix, staged, parent, self.jails)
        if isinstance(mutation, ChangeRequest):
            notes = await run_shielded(self._notes, parent.commit)
            prompt = change_prompt(mutation, notes=notes, settings=self.settings)
            return await editor.run_agent(self.agent, prompt, details, on_progress)
        if isinstance(mutation, Patch):
            return await self._patch(staged, mutation, on_progress)
        if isinstance(mutation, Texts):
            return await self._texts(staged, mutation, parent, editor, on_progress)
        return await self._merge(staged, mutation, editor, details, on_progress)

    async def _patch(self, staged: StagedChange, patch: Patch, on_progress: OnProgress) -> str:
        on_progress("applying the patch")
        size, allowed = len(patch.diff.encode()), self.settings.max_diff_bytes
        if size > allowed:
            raise rejected("size", f"the patch has {size} bytes, {allowed} are allowed")
        try:
            await run_shielded(staged.apply_patch, patch.diff)
        except GitError as error:
            raise rejected("edit", f"the patch does not apply: {error}") from None
        return "Applied the patch as it was given."

    async def _texts(
        self, staged: StagedChange, texts: Texts, parent: ParentInfo, editor: StagedEditor, on_progress: OnProgress
    ) -> str:
        on_progress("writing the texts")
        unknown = sorted(texts.texts.keys() - parent.seed.keys())
        if unknown:
            known = ", ".join(parent.seed) or "none"
            raise rejected("edit", f"the program has no component {unknown[0]!r:.100}; it has {known}")
        if isinstance(self.settings.seed_candidate, Path):
            await run_shielded(self._write_seed, staged, self.settings.seed_candidate, texts.texts)
        elif not await editor.write_texts(texts.texts):
            raise rejected(
                "edit",
                "the program has no file for its texts: set `seed_candidate` to a JSON file of "
                "its repository, or give it a function `write_texts(candidate)`; or change them by a change request",
            )
        return f"Wrote the texts of {', '.join(sorted(texts.texts))}."

    def _write_seed(self, staged: StagedChange, seed: Path, texts: Mapping[str, str]) -> None:
        """Write the texts into their JSON file, changing as little else as possible."""
        relative = os.path.relpath(self.settings.root / seed, self.settings.root)
        path = os.path.normpath(os.path.join(self.repository.prefix, relative))  # noqa: PTH118  # git's own notation
        content = None if path.startswith("../") else staged.content(path)
        if content is None:
            raise rejected("edit", f"{seed} is no file of the repository, so no commit can hold its texts")
        text = content.decode()
        first = _FIRST_MEMBER.match(text)
        written = json.dumps(
            {**json.loads(text), **texts}, ensure_ascii=text.isascii(), indent=first[1] if first else None
        )
        try:
            staged.write(path, (written + ("\n" if text.endswith("\n") else "")).encode())
        except GitError as error:
            raise rejected("edit", f"cannot write {path}: {error}") from None

    async def _merge(
        self,
        staged: StagedChange,
        merge: Merge,
        editor: StagedEditor,
        details: MutationDetails,
        on_progress: OnProgress,
    ) -> str:
        on_progress("merging")
        try:
            if await run_shielded(staged.contains_other_parent):
                raise rejected("empty", "the other candidate's code is part of this one's already")
            conflicts = await run_shielded(staged.merge)
        except GitError as error:
            raise rejected("edit", f"git cannot merge them: {error}") from None
        if not conflicts:
            return f"Merged {branch_of(merge.other)}; git found no conflicts."
        ours, theirs = await run_shielded(staged.subjects, OF_CHANGE_REQUESTS, MAX_PAST)
        prompt = conflict_prompt(conflicts, ours=ours, theirs=theirs, settings=self.settings)
        summary = await editor.run_agent(self.agent, prompt, details, on_progress)
        left = await run_shielded(staged.with_conflict_markers, conflicts)
        if left:
            raise rejected("edit", f"{self.agent.name} left conflict markers in {', '.join(map(repr, left)):.500}")
        return summary

    def _notes(self, commit: str) -> dict[str, str]:
        """Return the repository's notes for agents, text by path."""
        folders = dict.fromkeys(("", self.repository.prefix))
        paths = [str(PurePosixPath(folder) / name) for folder in folders for name in _NOTES]
        found = {path: self.repository.read(commit, path) for path in paths}
        return {path: content.decode("utf-8", "replace") for path, content in found.items() if content is not None}
