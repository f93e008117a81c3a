"""The four kinds of mutations: each turns the files of a draft into the changed ones."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from evolverpc_common.git import GitError
from evolverpc_common.shielded import to_the_end
from protocol.code import branch_of
from protocol.mutation import ChangeRequest, Merge, Mutation, Patch, Texts
from rpc_server.jail.jail import Jail
from rpc_server.mutations.agents import Agent
from rpc_server.mutations.messages import OF_CHANGE_REQUESTS
from rpc_server.mutations.prompt import MAX_PAST, change_prompt, conflict_prompt
from rpc_server.mutations.rejection import Attempt, rejected
from rpc_server.mutations.workbench import Before, Told, Workbench
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.draft import Draft
from rpc_server.worktrees.repository import Repository

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
