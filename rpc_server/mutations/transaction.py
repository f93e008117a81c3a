"""`apply_mutation` as a transaction: stage, edit, rules, commit, a running instance, then a branch; or nothing."""

import asyncio
import base64
import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from evolverpc_common.shielded import await_shielded, run_shielded
from protocol import ApplyMutationParams, ApplyMutationResult, Candidate
from protocol.code import ADDED_COMPONENTS, added_components, added_to
from protocol.errors import MutationRejected, ProgramFailed, RpcError, UnknownCandidate
from protocol.mutation import Merge, MutationName
from rpc_server.commands.run import run_command
from rpc_server.mutations.agents import Agent
from rpc_server.mutations.edits import MutationEditor, OnProgress, ParentInfo
from rpc_server.mutations.publishing import Publisher, commit_message
from rpc_server.mutations.rejection import MutationDetails, Stage, rejected
from rpc_server.mutations.rules import Rules
from rpc_server.rpc import wire
from rpc_server.rpc.params import invalid
from rpc_server.worktrees.candidates import ChangedCandidate, changed_candidate, named_commit
from rpc_server.worktrees.instances import Instance, InstancePool
from rpc_server.worktrees.repository import BRANCHES, BranchTaken
from rpc_server.worktrees.server_folder import WorktreePaths
from rpc_server.worktrees.staged_change import StagedChange
from rpc_server.worktrees.worktree import Worktree, worktree_environment


class KeyedLock:
    """Locks by name, kept only while a task holds or waits for them."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Wait for the lock of this name and hold it while the block runs."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] = self._users.get(name, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]


_STAGES: dict[object, Stage] = {"environment": "environment", "build": "build", "check": "check"}
"""The rejection stage by the stage of an instance's failure; any other is `start`."""


@dataclass(frozen=True)
class _NamedRequest:
    """A request, its name, and the digest that identifies a repeated request."""

    request: ApplyMutationParams
    name: MutationName
    digest: str

    @property
    def branch(self) -> str:
        return f"{BRANCHES}{self.name.run}/{self.name.number}"


@dataclass(frozen=True)
class _CommittedChange:
    """An edit allowed by the rules: its commit, the bundle with it, and a summary."""

    commit: str
    bundle: bytes
    summary: str
    files: list[str]
    diff: str


class CodeMutations:
    """Mutations of the commits of `instances`; see `rpc_server.methods.code_methods.MutationMethods`."""

    def __init__(self, instances: InstancePool, agent: Agent, rules: Rules) -> None:
        self._instances = instances
        self._repository = instances.repository
        self._settings = instances.settings
        self._rules = rules
        self._editor = MutationEditor(instances.repository, instances.settings, agent, instances.jails)
        self._publisher = Publisher(instances.repository, instances.settings.push)
        self._room = asyncio.Semaphore(instances.settings.max_mutations)
        self._branch_locks = KeyedLock()
        self._paths = WorktreePaths(instances.state.folder / "trees")

    async def apply(self, request: ApplyMutationParams, on_progress: OnProgress) -> ApplyMutationResult:
        """See `MutationMethods.apply`."""
        named = _NamedRequest(
            request, request.name or MutationName(run=f"unnamed-{uuid.uuid4().hex}", number=0), _digest(request)
        )
        async with self._branch_locks.hold(named.branch):
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
            parent = ParentInfo(parents[0], instance.seed, instance.worktree.environment)
        details = MutationDetails()
        try:
            committed, instance = await self._prepare(parents, named, parent, details, on_progress)
            try:
                result = _result(named, parent, committed, instance.seed, details)
                await self._publish(named, committed, result)
            except BaseException as error:
                await await_shielded(self._instances.close_instance(instance))
                if isinstance(error, BranchTaken) and (found := await self._find_published(named)) is not None:
                    return found  # another server finished the same request first
                raise
        except RpcError as error:
            details.add_to(error)
            raise
        await _uncancellable(self._instances.add(instance))
        return result

    async def _prepare(
        self,
        parents: list[str],
        named: _NamedRequest,
        parent: ParentInfo,
        details: MutationDetails,
        on_progress: OnProgress,
    ) -> tuple[_CommittedChange, Instance]:
        """Do everything that leaves the repository unchanged; again if the agent was killed."""
        try:
            return await self._prepare_once(parents, named, parent, details, on_progress)
        except MutationRejected:
            if details.killed != 1:
                raise
        on_progress(f"{self._editor.agent.name} was killed and starts again")
        return await self._prepare_once(parents, named, parent, details, on_progress)

    async def _prepare_once(
        self,
        parents: list[str],
        named: _NamedRequest,
        parent: ParentInfo,
        details: MutationDetails,
        on_progress: OnProgress,
    ) -> tuple[_CommittedChange, Instance]:
        instance = None
        try:
            async with self._stage(parents) as staged:
                committed = await self._commit_edit(staged, named, parent, details, on_progress)
                instance = await self._check(staged, committed.commit, on_progress)
        except BaseException:
            if instance is not None:
                await await_shielded(self._instances.close_instance(instance))
            raise
        return committed, instance

    async def _commit_edit(
        self,
        staged: StagedChange,
        named: _NamedRequest,
        parent: ParentInfo,
        details: MutationDetails,
        on_progress: OnProgress,
    ) -> _CommittedChange:
        """Edit, check the rules, and commit in the staging area."""
        summary = await self._editor.edit(staged, named.request.mutation, parent, details, on_progress)
        changes = await run_shielded(staged.changes)
        self._rules.check(changes)
        diff = await run_shielded(staged.diff, changes, self._settings.max_diff_bytes)
        details.diff = diff.text
        self._rules.check_size(diff.size)
        files = [file.path for file in changes.files]
        commit = await run_shielded(staged.commit, commit_message(named.request, named.name, summary, files))
        return _CommittedChange(
            commit, await run_shielded(staged.bundle, commit, named.branch), summary, files, diff.text
        )

    async def _check(self, staged: StagedChange, commit: str, on_progress: OnProgress) -> Instance:
        """Return a new instance of the commit that has started and passes the user's check."""
        try:
            instance = await self._instances.create_from(commit, staged.objects, on_progress)
            try:
                if self._settings.check_command is not None:
                    on_progress("running the check")
                    await self._run_check(self._settings.check_command, staged, instance.worktree)
            except BaseException:
                await await_shielded(self._instances.close_instance(instance))
                raise
        except ProgramFailed as error:
            if error.retryable:
                raise
            logs = [error.details.get(name) for name in ("traceback", "log_tail")]
            log_tail = "\n".join(text for text in logs if isinstance(text, str) and text)
            stage = _STAGES.get(error.details.get("stage"), "start")
            seen = self._paths.without
            raise rejected(stage, seen(error.message), log_tail=seen(log_tail)) from error
        return instance

    async def _run_check(self, command: tuple[str, ...], staged: StagedChange, worktree: Worktree) -> None:
        files = worktree.folder / "files"
        before = await run_shielded(staged.files_differing_in, files)  # changed by the build, as in every worktree
        await run_command(
            command,
            folder=worktree.root,
            environment=worktree_environment(self._settings, worktree),
            timeout_s=self._settings.check_timeout_s,
            stage="check",
            jail=worktree.jail,
        )
        changed = set(await run_shielded(staged.files_differing_in, files)) - set(before)
        if changed:
            names = ", ".join(map(repr, sorted(changed)))
            raise rejected("check", f"the check changed files, so they are not those of the commit: {names:.500}")

    async def _publish(self, named: _NamedRequest, committed: _CommittedChange, result: ApplyMutationResult) -> None:
        kept = {"asked": named.digest, "answer": result.model_dump(exclude_none=True), "made": uuid.uuid4().hex}
        await self._publisher.publish(named.branch, committed.commit, committed.bundle, wire.write(kept))

    @asynccontextmanager
    async def _stage(self, parents: list[str]) -> AsyncIterator[StagedChange]:
        staged = StagedChange(self._repository, self._instances.state.new_folder("drafts"), *parents)
        try:
            await run_shielded(staged.open)
            yield staged
        finally:
            await run_shielded(staged.close)


async def _uncancellable(committed: Coroutine[Any, Any, None]) -> None:
    """Wait for the end of work that follows a finished mutation, which can no longer be cancelled."""
    running = asyncio.ensure_future(committed)
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running])
    running.result()


def _digest(request: ApplyMutationParams) -> str:
    requested = request.model_dump(mode="json", include={"candidate", "mutation"})
    return hashlib.sha256(wire.canonical(requested)).hexdigest()


def _result(
    named: _NamedRequest, parent: ParentInfo, committed: _CommittedChange, now: Candidate, details: MutationDetails
) -> ApplyMutationResult:
    changed = _changed_candidate(named, parent, now, committed.commit)
    return ApplyMutationResult(
        candidate=changed.candidate,
        commit=committed.commit,
        parent=parent.commit,
        diff=committed.diff,
        files=committed.files,
        summary=committed.summary,
        branch=named.branch,
        bundle=base64.b64encode(committed.bundle).decode(),
        usage=details.usage,
        components_added=changed.added,
        components_removed=changed.removed,
    )


def _changed_candidate(named: _NamedRequest, parent: ParentInfo, now: Candidate, commit: str) -> ChangedCandidate:
    """Return the new candidate; a merge keeps this candidate's texts and the additions of both."""
    candidate, mutation = named.request.candidate, named.request.mutation
    if not isinstance(mutation, Merge):
        return changed_candidate(candidate, parent.seed, now, named.branch, commit)
    ours, theirs = added_to(candidate), added_to(mutation.other)
    both = {**ours, **{name: text for name, text in theirs.items() if name not in ours}}
    as_now = {name: now.get(name, text) for name, text in parent.seed.items()}
    return changed_candidate({**candidate, ADDED_COMPONENTS: added_components(both)}, as_now, now, named.branch, commit)
