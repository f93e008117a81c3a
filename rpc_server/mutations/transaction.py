"""`apply_mutation` as a transaction: stage, edit, rules, commit, a running instance, then a branch; or nothing."""

import asyncio
import base64
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from evolverpc_common.evolved_commits import BRANCHES
from evolverpc_common.git import GitError
from evolverpc_common.settings.sources import SettingsError
from evolverpc_common.shielded import await_shielded, run_shielded
from protocol import ApplyMutationParams, ApplyMutationResult, Candidate
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, added_to, git_branch
from protocol.errors import ProgramFailed, RpcError, UnknownCandidate
from protocol.mutation import Merge, MutationName
from rpc_server import wire
from rpc_server.mutations.agents import Agent, agent_from, agent_label
from rpc_server.mutations.edits import MutationDetails, MutationEditor, OnProgress, ParentInfo
from rpc_server.mutations.file_rules import Rules, Stage, rejected
from rpc_server.mutations.publishing import Publisher, commit_message
from rpc_server.program.supervised_command import run_command
from rpc_server.settings import Settings
from rpc_server.wire import invalid
from rpc_server.worktrees.candidates import named_commit
from rpc_server.worktrees.instances import Instance, InstancePool
from rpc_server.worktrees.repository import BranchTaken, UserRepository
from rpc_server.worktrees.staged_change import StagedChange
from rpc_server.worktrees.worktree import Worktree, worktree_environment

_STAGES: dict[object, Stage] = {"environment": "environment", "build": "build", "check": "check"}
"""The rejection stage by the stage of an instance's failure; any other is `start`."""


@dataclass(frozen=True)
class _NamedRequest:
    """A request, and its name."""

    request: ApplyMutationParams
    name: MutationName

    @property
    def branch(self) -> str:
        return f"{BRANCHES}{self.name.run}/{self.name.number}"

    @property
    def digest(self) -> str:
        """What identifies a repeated request."""
        requested = self.request.model_dump(mode="json", include={"candidate", "mutation"})
        return hashlib.sha256(wire.canonical(requested)).hexdigest()


@dataclass(frozen=True)
class _CommittedChange:
    """An edit allowed by the rules: its commit, the bundle with it, and a summary."""

    commit: str
    bundle: bytes
    summary: str
    files: list[str]


class CodeMutations:
    """Changes of the code or texts of the commits of `instances`, any number at a time; a bounded number runs."""

    def __init__(self, instances: InstancePool, agent: Agent, rules: Rules) -> None:
        self._instances = instances
        self._repository = instances.repository
        self._agent = agent
        self._rules = rules
        self._publisher = Publisher(instances.repository, instances.settings.push)
        self._room = asyncio.Semaphore(instances.settings.max_mutations)
        # A lock is kept while a task holds or waits for it.
        self._branch_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def agent_label(self) -> str:
        """Which agent makes the changes, for people."""
        return agent_label(self._instances.settings)

    def fixed_files(self, commit: str) -> tuple[list[str], int]:
        """Return the files of a commit that no change may touch, and the number of all its files. Blocks."""
        files = self._repository.files(commit)
        return [path for path in files if self._rules.fault_of_path(path) is not None], len(files)

    async def apply(self, request: ApplyMutationParams, on_progress: OnProgress) -> ApplyMutationResult:
        """Make the change as a whole or not at all; `on_progress` receives the current step.

        Cancelling ends everything it started and leaves nothing behind.

        Raises:
            MutationRejected: nothing was changed; with `stage` and `reason`.
            UnknownCandidate: a commit is missing.
            InvalidParams: the name belongs to another mutation.
        """
        named = _NamedRequest(request, request.name or MutationName(run=f"unnamed-{uuid.uuid4().hex}", number=0))
        async with self._branch_locks.setdefault(named.branch, asyncio.Lock()):
            found = await self._find_published(named)
            if found is not None:
                return found
            async with self._room:
                return await self._make(named, on_progress)

    async def _find_published(self, named: _NamedRequest) -> ApplyMutationResult | None:
        """Return the kept result of the branch, by a server that may have been killed before it pushed."""
        commit = await run_shielded(self._repository.branch, named.branch)
        if commit is None:
            return None
        kept = await run_shielded(self._repository.answer, named.branch)
        if kept is None:
            raise invalid("name", f"the branch {named.branch} is there already, and no mutation here made it")
        found = json.loads(kept)
        if found["asked"] != named.digest:
            raise invalid("name", f"the branch {named.branch} stands for another mutation")
        if found["answer"]["commit"] != commit:
            raise invalid("name", f"the branch {named.branch} has been moved since a mutation here made it")
        await self._publisher.push_again(named.branch, commit)
        return ApplyMutationResult.model_validate(found["answer"])

    async def _make(self, named: _NamedRequest, on_progress: OnProgress) -> ApplyMutationResult:
        mutation = named.request.mutation
        parents = [named_commit(named.request.candidate)]
        if isinstance(mutation, Merge):
            parents.append(named_commit(mutation.other))
            if not await run_shielded(self._repository.has, parents[1]):
                raise UnknownCandidate(f"there is no commit {parents[1]} here", commit=parents[1])
        async with self._instances.acquire(parents[0]) as instance:
            parent = ParentInfo(instance.seed, instance.worktree.environment)
        staged = StagedChange(self._repository, self._instances.state.new_folder("drafts"), *parents)
        details = MutationDetails()
        editor = MutationEditor(self._instances, self._agent, staged, parent, details, on_progress)
        try:
            async with AsyncExitStack() as undo:
                try:
                    await run_shielded(staged.open)
                    committed = await self._commit_edit(named, editor)
                    instance = await self._start_checked(editor, committed.commit, undo)
                finally:
                    await run_shielded(staged.close)
                result = _result(named, parent, committed, instance.seed, details)
                kept = {"asked": named.digest, "answer": result.model_dump(exclude_none=True), "made": uuid.uuid4().hex}
                try:
                    await self._publisher.publish(named.branch, committed.commit, committed.bundle, wire.write(kept))
                except BranchTaken:
                    if (found := await self._find_published(named)) is None:
                        raise
                    return found  # another server finished the same request first
                undo.pop_all()
        except RpcError as error:
            details.add_to(error)
            raise
        with suppress(asyncio.CancelledError):  # a finished mutation can no longer be cancelled
            await await_shielded(self._instances.add(instance))
        return result

    async def _commit_edit(self, named: _NamedRequest, editor: MutationEditor) -> _CommittedChange:
        """Edit, check the rules, and commit in the staged change."""
        staged, details = editor.staged, editor.details
        summary = await editor.edit(named.request.mutation)
        changes = await run_shielded(staged.changes)
        self._rules.check(changes)
        details.diff, size = await run_shielded(staged.diff, changes, self._rules.max_diff_bytes)
        self._rules.check_size(size)
        files = [file.path for file in changes]
        commit = await run_shielded(staged.commit, commit_message(named.request, named.name, summary, files))
        return _CommittedChange(commit, await run_shielded(staged.bundle, commit, named.branch), summary, files)

    async def _start_checked(self, editor: MutationEditor, commit: str, undo: AsyncExitStack) -> Instance:
        """Return a new instance of the commit that has started and passes the user's check; `undo` closes it."""
        instances, staged = self._instances, editor.staged
        try:
            instance = await instances.create_from(commit, staged.objects, editor.on_progress)
            undo.push_async_callback(lambda: await_shielded(instances.close_instance(instance)))
            if instances.settings.check_command is not None:
                editor.on_progress("running the check")
                if changed := await run_check(instances.settings, staged, instance.worktree):
                    reason = f"the check changed files, so they are not those of the commit: {changed:.500}"
                    raise rejected("check", reason)
        except ProgramFailed as error:
            if error.retryable:
                raise
            logs = [error.details.get(name) for name in ("traceback", "log_tail")]
            log_tail = "\n".join(text for text in logs if isinstance(text, str) and text)
            stage = _STAGES.get(error.details.get("stage"), "start")
            without_paths = instances.state.without_paths
            raise rejected(stage, without_paths(error.message), log_tail=without_paths(log_tail)) from error
        return instance


async def run_check(settings: Settings, staged: StagedChange, worktree: Worktree) -> str:
    """Run `check_command` in a worktree of the staged change; return the files that it changed, empty for none.

    Raises:
        ProgramFailed: the check fails; stage `check`.
    """
    files = worktree.folder / "files"
    before = await run_shielded(staged.files_differing_in, files)  # changed by the build, as in every worktree
    await run_command(
        settings.check_command or (),
        folder=worktree.root,
        environment=worktree_environment(settings, worktree),
        timeout_s=settings.check_timeout_s,
        stage="check",
        jail=worktree.jail,
    )
    changed = set(await run_shielded(staged.files_differing_in, files)) - set(before)
    return ", ".join(map(repr, sorted(changed)))


def _result(
    named: _NamedRequest, parent: ParentInfo, committed: _CommittedChange, now: Candidate, details: MutationDetails
) -> ApplyMutationResult:
    return ApplyMutationResult(
        candidate=_new_candidate(named, parent, now, committed.commit),
        commit=committed.commit,
        parent=named_commit(named.request.candidate),
        diff=details.diff or "",
        files=committed.files,
        summary=committed.summary,
        branch=named.branch,
        bundle=base64.b64encode(committed.bundle).decode(),
        usage=details.usage,
        components_added=sorted(now.keys() - parent.seed.keys()),
        components_removed=sorted(parent.seed.keys() - now.keys()),
    )


def _new_candidate(named: _NamedRequest, parent: ParentInfo, now: Candidate, commit: str) -> Candidate:
    """Return the new candidate; a merge keeps this candidate's texts and the additions of both."""
    candidate, mutation = named.request.candidate, named.request.mutation
    if not isinstance(mutation, Merge):
        return changed_candidate(candidate, parent.seed, now, named.branch, commit)
    ours, theirs = added_to(candidate), added_to(mutation.other)
    both = {**ours, **{name: text for name, text in theirs.items() if name not in ours}}
    as_now = {name: now.get(name, text) for name, text in parent.seed.items()}
    return changed_candidate({**candidate, ADDED_COMPONENTS: added_components(both)}, as_now, now, named.branch, commit)


def changed_candidate(candidate: Candidate, before: Candidate, now: Candidate, branch: str, commit: str) -> Candidate:
    """Return the candidate whose code moved from texts `before` to texts `now` at `commit`.

    A text that the commit changed is the new one; an unknown name gets the commit's text. A component that the commit
    has again, and `before` had not, counts as added and keeps its text.
    """
    added = added_to(candidate)
    new = {name: text for name, text in now.items() if name not in candidate and name not in added}
    changed = {name: text for name, text in now.items() if name in before and before[name] != text}
    texts = {name: changed.get(name, text) for name, text in candidate.items()}
    added = {name: changed.get(name, text) for name, text in added.items()} | new
    texts |= {GIT_BRANCH: git_branch(branch, commit)}
    if added != added_to(candidate):
        texts |= {ADDED_COMPONENTS: added_components(added)}
    return texts


_NEEDED = (2, 38)
"""The first git that merges without a working tree."""


async def open_mutations(instances: InstancePool) -> CodeMutations:
    """Return the mutations of these instances, as their settings configure them.

    Raises:
        SettingsError: git is too old, or the remote or agent does not exist.
    """
    settings = instances.settings
    rules = Rules.of(settings, instances.repository.prefix)
    agent = agent_from(settings.model_copy(update={"agent_command": _agent_command(settings)}))
    await asyncio.to_thread(_check_git, instances.repository, settings.push)
    return CodeMutations(instances, agent, rules)


async def check_prerequisites(instances: InstancePool, commit: str) -> None:
    """Check that mutations of this commit can succeed: the agent exists, and the check passes unchanged.

    Raises:
        SettingsError: there is no such agent, or the check fails on the commit itself.
        ProgramFailed: the commit has no running instance.
    """
    settings = instances.settings
    async with instances.acquire(commit) as instance:
        _check_agent(settings, worktree_environment(settings, instance.worktree))
        if settings.check_command is None:
            return
        staged = StagedChange(instances.repository, instances.state.new_folder("drafts"), commit)
        try:
            await run_shielded(staged.open)
            changed = await run_check(settings, staged, instance.worktree)
        except ProgramFailed as error:
            log = str(error.details["log_tail"]).rstrip()
            output = "".join(f"\n    {line}" for line in log.splitlines())
            raise SettingsError(
                f"`check_command` fails on the code as it is, so every change would be rejected: {error.message}"
                + (f"\n  its output:{output}" if output else "")
            ) from None
        finally:
            await run_shielded(staged.close)
    if changed:
        raise SettingsError(f"`check_command` changes files, so every change would be rejected: {changed:.500}")


def _agent_command(settings: Settings) -> tuple[str, ...] | None:
    """Return the agent command with paths resolved from `root`: the executable, and words that lead out of it.

    Other words may name files that the agent finds in the worktree.
    """
    if settings.agent_command is None:
        return None
    name, *words = settings.agent_command
    own = _from_root(settings, name) if os.sep in name else name
    return (own, *(_from_root(settings, word) if _is_outside_root(word) else word for word in words))


def _check_agent(settings: Settings, environment: Mapping[str, str]) -> None:
    command = _agent_command(settings)
    if settings.agent_command is None or command is None:
        return
    for word in (word for word in settings.agent_command[1:] if _is_outside_root(word)):
        if not Path(_from_root(settings, word)).exists():
            raise SettingsError(f"`agent_command`: there is no {word} in {settings.root}")
    if shutil.which(command[0], path=environment.get("PATH")) is None:
        name = settings.agent_command[0]
        raise SettingsError(f"`agent_command`: no {name} on PATH or in {settings.root} can be executed")


def _from_root(settings: Settings, path: str) -> str:
    return os.path.normpath(settings.root.absolute() / path)


def _is_outside_root(word: str) -> bool:
    return word.startswith(f"..{os.sep}")


def _check_git(repository: UserRepository, remote: str | None) -> None:
    from git import Git  # a tenth of a second

    version = Git().version_info
    if version < _NEEDED:
        this = ".".join(map(str, version)) or "an unknown version"
        raise SettingsError(f"`allow_mutations` needs git {_NEEDED[0]}.{_NEEDED[1]} or newer; this is {this}")
    if remote is not None:
        try:
            repository.git.line("remote", "get-url", remote)
        except GitError as error:
            raise SettingsError(f"`push`: {error}") from None
