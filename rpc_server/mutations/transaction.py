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

from evolverpc_common.shielded import all_of, to_the_end
from protocol import ApplyMutationParams, ApplyMutationResult, Candidate
from protocol.code import ADDED_COMPONENTS, added_components, added_to
from protocol.errors import MutationRejected, ProgramFailed, RpcError, UnknownCandidate
from protocol.mutation import Merge, MutationName
from rpc_server.commands.run import run_command
from rpc_server.mutations.agents import Agent
from rpc_server.mutations.edits import Before, Editor, Told
from rpc_server.mutations.publishing import Publisher, commit_message
from rpc_server.mutations.rejection import Attempt, Stage, rejected
from rpc_server.mutations.rules import Rules
from rpc_server.rpc import wire
from rpc_server.rpc.params import invalid
from rpc_server.worktrees.candidates import Changed, after, named_commit
from rpc_server.worktrees.instances import Ready, Trees
from rpc_server.worktrees.repository import BRANCHES, BranchTaken
from rpc_server.worktrees.server_folder import Places
from rpc_server.worktrees.staged_change import Draft
from rpc_server.worktrees.worktree import Tree, environment_in


class Alone:
    """Locks by name, kept only as long as somebody holds or waits for them."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def at(self, name: str) -> AsyncIterator[None]:
        """Wait until nobody else is at this name."""
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
"""Where a tree that cannot be made ready failed; anything else is the start of its program."""


@dataclass(frozen=True)
class _Order:
    """A request, the name it goes by, and the digest by which it is known again."""

    request: ApplyMutationParams
    name: MutationName
    digest: str

    @property
    def branch(self) -> str:
        return f"{BRANCHES}{self.name.run}/{self.name.number}"


@dataclass(frozen=True)
class _Work:
    """What a draft came to, allowed by the rules: its commit, the bundle with it, and what was done in words."""

    commit: str
    bundle: bytes
    summary: str
    files: list[str]
    diff: str


class TreeMutations:
    """Mutations of the commits of `trees`; see `rpc_server.methods.code.Mutations`."""

    def __init__(self, trees: Trees, agent: Agent, rules: Rules) -> None:
        self._trees = trees
        self._repository = trees.repository
        self._settings = trees.settings
        self._rules = rules
        self._editor = Editor(trees.repository, trees.settings, agent, trees.jail)
        self._publisher = Publisher(trees.repository, trees.settings.push)
        self._room = asyncio.Semaphore(trees.settings.max_mutations)
        self._alone = Alone()
        self._places = Places(trees.state.folder / "trees")

    async def apply(self, request: ApplyMutationParams, told: Told) -> ApplyMutationResult:
        """See `Mutations.apply`."""
        order = _Order(
            request, request.name or MutationName(run=f"unnamed-{uuid.uuid4().hex}", number=0), _digest(request)
        )
        async with self._alone.at(order.branch):
            found = await self._found(order)
            if found is not None:
                return found
            async with self._room:
                return await self._made(order, told)

    async def _found(self, order: _Order) -> ApplyMutationResult | None:
        """What was answered when the branch was made, by a server that may have been killed before it pushed."""
        commit = await to_the_end(self._repository.branch, order.branch)
        if commit is None:
            return None
        kept = await to_the_end(self._repository.answer, order.branch)
        if kept is None:
            raise invalid("name", f"the branch {order.branch} is there already, and no mutation here made it")
        found = json.loads(kept)
        if found["asked"] != order.digest:
            raise invalid("name", f"the branch {order.branch} stands for another mutation")
        if found["answer"]["commit"] != commit:
            raise invalid("name", f"the branch {order.branch} has been moved since a mutation here made it")
        await self._publisher.push_again(order.branch, commit)
        return ApplyMutationResult.model_validate(found["answer"])

    async def _made(self, order: _Order, told: Told) -> ApplyMutationResult:
        mutation = order.request.mutation
        parents = [named_commit(order.request.candidate)]
        if isinstance(mutation, Merge):
            parents.append(named_commit(mutation.other))
            if not await to_the_end(self._repository.has, parents[1]):
                raise UnknownCandidate(f"there is no commit {parents[1]} here", commit=parents[1])
        async with self._trees.at(parents[0]) as ready:
            before = Before(parents[0], ready.seed, ready.tree.environment)
        attempt = Attempt()
        try:
            work, ready = await self._prepared(parents, order, before, attempt, told)
            try:
                result = _result(order, before, work, ready.seed, attempt)
                await self._publish(order, work, result)
            except BaseException as error:
                await all_of(self._trees.put_away(ready))
                if isinstance(error, BranchTaken) and (found := await self._found(order)) is not None:
                    return found  # another server was asked for the same, and was done first
                raise
        except RpcError as error:
            attempt.explain(error)
            raise
        await _whatever_comes(self._trees.keep(ready))
        return result

    async def _prepared(
        self, parents: list[str], order: _Order, before: Before, attempt: Attempt, told: Told
    ) -> tuple[_Work, Ready]:
        """Everything that can be done without the repository noticing; once more where the agent was killed."""
        try:
            return await self._prepared_once(parents, order, before, attempt, told)
        except MutationRejected:
            if attempt.killed != 1:
                raise
        told(f"{self._editor.agent.name} was cut short, and begins again")
        return await self._prepared_once(parents, order, before, attempt, told)

    async def _prepared_once(
        self, parents: list[str], order: _Order, before: Before, attempt: Attempt, told: Told
    ) -> tuple[_Work, Ready]:
        ready = None
        try:
            async with self._draft(parents) as draft:
                work = await self._worked(draft, order, before, attempt, told)
                ready = await self._checked(draft, work.commit, told)
        except BaseException:
            if ready is not None:
                await all_of(self._trees.put_away(ready))
            raise
        return work, ready

    async def _worked(self, draft: Draft, order: _Order, before: Before, attempt: Attempt, told: Told) -> _Work:
        """The edit, held against the rules, as a commit of the draft."""
        summary = await self._editor.edit(draft, order.request.mutation, before, attempt, told)
        changes = await to_the_end(draft.changes)
        self._rules.check(changes)
        diff = await to_the_end(draft.diff, changes, self._settings.max_diff_bytes)
        attempt.diff = diff.text
        self._rules.check_size(diff.size)
        files = [file.path for file in changes.files]
        commit = await to_the_end(draft.commit, commit_message(order.request, order.name, summary, files))
        return _Work(commit, await to_the_end(draft.bundle, commit, order.branch), summary, files, diff.text)

    async def _checked(self, draft: Draft, commit: str, told: Told) -> Ready:
        """A fresh tree of the commit, whose program has started and which passes the user's check."""
        try:
            ready = await self._trees.ready_from(commit, draft.objects, told)
            try:
                if self._settings.check_command is not None:
                    told("running the check")
                    await self._run_check(self._settings.check_command, draft, ready.tree)
            except BaseException:
                await all_of(self._trees.put_away(ready))
                raise
        except ProgramFailed as error:
            if error.retryable:
                raise
            said = [error.details.get(name) for name in ("traceback", "log_tail")]
            log_tail = "\n".join(text for text in said if isinstance(text, str) and text)
            stage = _STAGES.get(error.details.get("stage"), "start")
            seen = self._places.without
            raise rejected(stage, seen(error.message), log_tail=seen(log_tail)) from error
        return ready

    async def _run_check(self, command: tuple[str, ...], draft: Draft, tree: Tree) -> None:
        files = tree.folder / "files"
        before = await to_the_end(draft.differing, files)  # what the build changed, as it does in every tree
        await run_command(
            command,
            folder=tree.root,
            environment=environment_in(self._settings, tree),
            timeout_s=self._settings.check_timeout_s,
            stage="check",
            cell=tree.cell,
        )
        changed = set(await to_the_end(draft.differing, files)) - set(before)
        if changed:
            names = ", ".join(map(repr, sorted(changed)))
            raise rejected("check", f"the check changed files, so they are not those of the commit: {names:.500}")

    async def _publish(self, order: _Order, work: _Work, result: ApplyMutationResult) -> None:
        made = {"asked": order.digest, "answer": result.model_dump(exclude_none=True), "made": uuid.uuid4().hex}
        await self._publisher.publish(order.branch, work.commit, work.bundle, wire.write(made))

    @asynccontextmanager
    async def _draft(self, parents: list[str]) -> AsyncIterator[Draft]:
        draft = Draft(self._repository, self._trees.state.new_folder("drafts"), *parents)
        try:
            await to_the_end(draft.open)
            yield draft
        finally:
            await to_the_end(draft.close)


async def _whatever_comes(work: Coroutine[Any, Any, None]) -> None:
    """Wait for the end of what follows upon a mutation that is done; it is too late to cancel that."""
    running = asyncio.ensure_future(work)
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running])
    running.result()


def _digest(request: ApplyMutationParams) -> str:
    asked = request.model_dump(mode="json", include={"candidate", "mutation"})
    return hashlib.sha256(wire.canonical(asked)).hexdigest()


def _result(order: _Order, before: Before, work: _Work, now: Candidate, attempt: Attempt) -> ApplyMutationResult:
    changed = _after(order, before, now, work.commit)
    return ApplyMutationResult(
        candidate=changed.candidate,
        commit=work.commit,
        parent=before.commit,
        diff=work.diff,
        files=work.files,
        summary=work.summary,
        branch=order.branch,
        bundle=base64.b64encode(work.bundle).decode(),
        usage=attempt.usage,
        components_added=changed.added,
        components_removed=changed.removed,
    )


def _after(order: _Order, before: Before, now: Candidate, commit: str) -> Changed:
    """The new candidate; that of a merge keeps this candidate's texts, and has what was added to either."""
    candidate, mutation = order.request.candidate, order.request.mutation
    if not isinstance(mutation, Merge):
        return after(candidate, before.seed, now, order.branch, commit)
    ours, theirs = added_to(candidate), added_to(mutation.other)
    both = {**ours, **{name: text for name, text in theirs.items() if name not in ours}}
    as_now = {name: now.get(name, text) for name, text in before.seed.items()}
    return after({**candidate, ADDED_COMPONENTS: added_components(both)}, as_now, now, order.branch, commit)
