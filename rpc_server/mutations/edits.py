"""The four kinds of mutations: each changes the files of a staged change."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from evolverpc_common.files import open_plain
from evolverpc_common.git import GitError
from evolverpc_common.node_package_managers import MODULES
from evolverpc_common.shielded import run_shielded
from protocol import Candidate
from protocol.code import branch_of
from protocol.errors import MutationRejected, ProgramFailed, RpcError
from protocol.evaluation import Usage
from protocol.mutation import ChangeRequest, Merge, Mutation, Patch, Texts
from rpc_server.jail.jail import TMP
from rpc_server.mutations.agent_prompt import MAX_PAST, change_prompt, conflict_prompt
from rpc_server.mutations.agents import Agent, AgentFailed
from rpc_server.mutations.file_rules import rejected
from rpc_server.mutations.publishing import OF_CHANGE_REQUESTS
from rpc_server.program.open_program import open_program
from rpc_server.program.program import WRITE_TEXTS
from rpc_server.worker.model_apis import sum_usage
from rpc_server.worktrees.environments import Environment
from rpc_server.worktrees.instances import InstancePool
from rpc_server.worktrees.outline import AGENT_NOTES
from rpc_server.worktrees.staged_change import EditableFiles, StagedChange, UncommittableFiles
from rpc_server.worktrees.worktree import Worktree, prepare_worktree, worktree_environment, worktree_settings

OnProgress = Callable[[str], None]
"""Receives the current step, in a few words."""

_NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Keeps bytecode files out of changes whose `.gitignore` does not name them."""


MAX_DIFF = 20_000
"""Characters of a rejected diff that are reported."""


@dataclass
class MutationDetails:
    """What is known of a mutation so far: the agent's usage, and the diff."""

    usage: Usage | None = None
    diff: str | None = None

    def add_usage(self, usage: Usage) -> None:
        """Add an agent's usage; unknown fields stay out."""
        before = self.usage or Usage()
        both = (one.model_dump(exclude_none=True) for one in (before, usage))
        self.usage = Usage.model_validate(sum_usage(*both))

    def add_to(self, error: RpcError) -> None:
        """Add the usage to any error, and the diff to a rejection."""
        if self.usage is not None:
            error.details["usage"] = self.usage.model_dump(exclude_none=True)
        if self.diff is not None and isinstance(error, MutationRejected):
            error.details["diff"] = self.diff[:MAX_DIFF]


@dataclass(frozen=True)
class ParentInfo:
    """The parent commit as it runs: its program's seed texts, and its environment."""

    seed: Candidate
    environment: Environment


_FIRST_MEMBER = re.compile(r'\s*\{\r?\n([ \t]+)"')


@dataclass(frozen=True)
class MutationEditor:
    """Makes one mutation in a staged change; what it runs is jailed if the instances are.

    `details` collects what an agent used.
    """

    instances: InstancePool
    agent: Agent
    staged: StagedChange
    parent: ParentInfo
    details: MutationDetails
    on_progress: OnProgress

    async def edit(self, mutation: Mutation) -> str:
        """Make the requested change; return a summary. All processes have ended when this returns or raises.

        Raises:
            MutationRejected: stage `edit`, `agent`, `empty`, or `paths` and `size` for an agent's files.
        """
        match mutation:
            case ChangeRequest():
                notes = await run_shielded(self._notes, self.staged.parents[0])
                return await self._run_agent(change_prompt(mutation, notes=notes, settings=self.instances.settings))
            case Patch():
                return await self._patch(mutation)
            case Texts():
                return await self._texts(mutation.texts)
            case Merge():
                return await self._merge(mutation)

    async def _patch(self, patch: Patch) -> str:
        self.on_progress("applying the patch")
        size, allowed = len(patch.diff.encode()), self.instances.settings.max_diff_bytes
        if size > allowed:
            raise rejected("size", f"the patch has {size} bytes, {allowed} are allowed")
        try:
            await run_shielded(self.staged.apply_patch, patch.diff)
        except GitError as error:
            raise rejected("edit", f"the patch does not apply: {error}") from None
        return "Applied the patch as it was given."

    async def _texts(self, texts: Candidate) -> str:
        self.on_progress("writing the texts")
        unknown = sorted(texts.keys() - self.parent.seed.keys())
        if unknown:
            known = ", ".join(self.parent.seed) or "none"
            raise rejected("edit", f"the program has no component {unknown[0]!r:.100}; it has {known}")
        if isinstance(self.instances.settings.seed_candidate, Path):
            await run_shielded(self._write_seed, self.instances.settings.seed_candidate, texts)
        elif not await self._write_texts(texts):
            raise rejected(
                "edit",
                "the program has no file for its texts: set `seed_candidate` to a JSON file of "
                "its repository, or give it a function `write_texts(candidate)`; or change them by a change request",
            )
        return f"Wrote the texts of {', '.join(sorted(texts))}."

    def _write_seed(self, seed: Path, texts: Mapping[str, str]) -> None:
        """Write the texts into their JSON file, changing as little else as possible."""
        relative = os.path.relpath(self.instances.settings.root / seed, self.instances.settings.root)
        path = os.path.normpath(os.path.join(self.instances.repository.prefix, relative))  # noqa: PTH118  # git's own notation
        content = None if path.startswith("../") else self.staged.content(path)
        if content is None:
            raise rejected("edit", f"{seed} is no file of the repository, so no commit can hold its texts")
        text = content.decode()
        first = _FIRST_MEMBER.match(text)
        written = json.dumps(
            {**json.loads(text), **texts}, ensure_ascii=text.isascii(), indent=first[1] if first else None
        )
        try:
            self.staged.write(path, (written + ("\n" if text.endswith("\n") else "")).encode())
        except GitError as error:
            raise rejected("edit", f"cannot write {path}: {error}") from None

    async def _merge(self, merge: Merge) -> str:
        self.on_progress("merging")
        try:
            if await run_shielded(self.staged.contains_other_parent):
                raise rejected("empty", "the other candidate's code is part of this one's already")
            conflicts = await run_shielded(self.staged.merge)
        except GitError as error:
            raise rejected("edit", f"git cannot merge them: {error}") from None
        if not conflicts:
            return f"Merged {branch_of(merge.other)}; git found no conflicts."
        ours, theirs = await run_shielded(self.staged.subjects, OF_CHANGE_REQUESTS, MAX_PAST)
        prompt = conflict_prompt(conflicts, ours=ours, theirs=theirs, settings=self.instances.settings)
        summary = await self._run_agent(prompt)
        left = await run_shielded(self.staged.with_conflict_markers, conflicts)
        if left:
            raise rejected("edit", f"{self.agent.name} left conflict markers in {', '.join(map(repr, left)):.500}")
        return summary

    def _notes(self, commit: str) -> dict[str, str]:
        folders = dict.fromkeys(("", self.instances.repository.prefix))
        paths = [str(PurePosixPath(folder) / name) for folder in folders for name in AGENT_NOTES]
        found = self.instances.repository.read_all(commit, paths)
        return {path: found[path].decode("utf-8", "replace") for path in paths if path in found}

    async def _run_agent(self, prompt: str) -> str:
        """Run the agent on the files and stage what it changed; return its final message."""
        editable, worktree, links = await self._check_out()
        environment = self._environment(worktree)
        self.on_progress(f"{self.agent.name} is at work")
        try:
            result = await self.agent.work(
                prompt, self.on_progress, folder=worktree.folder, environment=environment, jail=worktree.jail
            )
        except AgentFailed as error:
            self.details.add_usage(error.usage)
            raise rejected("agent", error.reason, log_tail=error.log_tail) from error
        self.details.add_usage(result.usage)
        self.on_progress("staging its changes")
        try:
            await run_shielded(editable.collect, self.instances.settings.max_diff_bytes, links)
        except UncommittableFiles as error:
            raise rejected("size" if error.too_large else "paths", error.reason) from error
        return result.summary

    async def _write_texts(self, texts: Candidate) -> bool:
        """Let the program write its texts into its files, and stage them; return False if it cannot."""
        _, worktree, _ = await self._check_out()
        settings = worktree_settings(self.instances.settings, worktree)
        settings = settings.model_copy(update={"env": {**settings.env, **_NO_BYTECODE}})
        try:
            program = await open_program(settings, jail=worktree.jail)
            try:
                if WRITE_TEXTS not in program.capabilities:
                    return False
                answer = await program.call(WRITE_TEXTS, {"candidate": {**self.parent.seed, **texts}})
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
        inside = real.relative_to(top).as_posix()
        try:
            with open_plain(top, inside) as written:
                size = os.fstat(written.fileno()).st_size
                if size > self.instances.settings.max_diff_bytes + len(self.staged.content(inside) or b""):
                    raise rejected("size", f"{file!r} has {size} bytes now")
                self.staged.write(inside, written.read(size))
        except (GitError, OSError) as error:
            raise rejected("edit", f"{file!r}, which the program wrote, cannot be kept: {error}") from None

    async def _check_out(self) -> tuple[EditableFiles, Worktree, list[Path]]:
        """Write the files to disk; return them, a worktree over them, and the links that are no part of them."""
        editable = await run_shielded(EditableFiles, self.staged)
        folder = editable.folder
        scratch = folder.parent / "scratch"
        scratch.mkdir()
        # Its repository borrows objects from the parent folder.
        jail = None if self.instances.jails is None else self.instances.jails.jail(folder, readable=(folder.parent,))
        worktree = Worktree(
            self.staged.parents[0],
            folder,
            folder / self.instances.repository.prefix,
            scratch,
            self.parent.environment,
            jail,
        )
        places = [worktree.root / name for name in self.instances.settings.links]
        places += [folder / name / MODULES for name in worktree.environment.node_folders]
        links = [place for place in places if not (place.is_symlink() or place.exists())]
        await prepare_worktree(self.instances.settings.model_copy(update={"build_command": None}), folder, worktree)
        return editable, worktree, links

    def _environment(self, worktree: Worktree) -> Mapping[str, str]:
        """Return the environment of commands in the worktree; git finds only its own repository."""
        inherited = worktree_environment(self.instances.settings, worktree)
        outside = worktree.folder.parent
        private = outside if worktree.jail is None else TMP
        return {
            **{name: value for name, value in inherited.items() if not name.startswith("GIT_")},
            **_NO_BYTECODE,
            "GIT_CEILING_DIRECTORIES": str(outside),
            "GIT_CONFIG_GLOBAL": str(private / "gitconfig"),  # removed with the folder
        }
