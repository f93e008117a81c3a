"""A program whose candidates name the commit that runs: each commit has its own worktree and processes."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from evolverpc_common.git import GitError
from evolverpc_common.open_connections import raise_descriptor_limit
from evolverpc_common.shielded import run_shielded
from protocol import Candidate, CandidateItem, Example
from protocol.code import by_requested_component
from protocol.errors import InvalidParams, ProgramFailed, TrajectoryExpired, UnknownCandidate
from rpc_server.jail.jail import JailFactory
from rpc_server.program.program import ProgramRefs, ResultDict
from rpc_server.program.scheduler import NoProcessAvailable
from rpc_server.settings import Settings
from rpc_server.worktrees.candidates import (
    named_commit,
    program_candidate,
    requested_from_program,
    with_code_components,
)
from rpc_server.worktrees.environments import CommitEnvironments
from rpc_server.worktrees.instances import Instance, InstancePool
from rpc_server.worktrees.outline import outline_of
from rpc_server.worktrees.repository import UserRepository
from rpc_server.worktrees.server_folder import ServerFolder, cache_folder, servers_folder
from rpc_server.worktrees.worktree import check_links, copy_artifacts, copy_saved_program


class WorktreeProgram:
    """A `Program` over the programs of commits, which candidates name.

    It is described by the seed commit's program; `limits` hold over all commits.
    """

    ready = True  # a commit that cannot run is its candidate's fault, and others can

    def __init__(self, instances: InstancePool, seed: Instance, branch: str) -> None:
        program = seed.running()
        self.instances = instances
        self._seed = seed.worktree.commit
        self.info = with_code_components(program.info, branch, self._seed)
        self.capabilities = program.capabilities - {"batch_evaluate"}
        self.limits = program.limits
        self.splits = program.splits
        self._state: Any = None

    async def evaluate(
        self,
        candidate: Candidate,
        batch: Sequence[Example],
        *,
        capture_traces: bool,
        items: Sequence[CandidateItem] | None = None,  # noqa: ARG002  # never offered: each commit runs in its own processes
        timeout_s: float | None = None,
        group: str | None = None,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """See `Program.evaluate`.

        If the commit's program cannot run, each example without a result gets that failure; only a failure of the seed
        commit concerns every candidate, and is raised.
        """
        async with self.instances.acquire(named_commit(candidate)) as instance:
            if instance.failed is not None:
                for position in range(len(batch)):
                    on_result(position, self._without_paths(_cannot_run(instance.failed)))
                return
            refs = self._refs(instance)
            missing = dict.fromkeys(range(len(batch)))

            def receive(position: int, result: ResultDict) -> None:
                del missing[position]
                result = self._without_paths(result)
                on_result(position, result if refs is None else refs.outgoing(result, None))

            try:
                await instance.running().evaluate(
                    program_candidate(instance.seed, candidate),
                    batch,
                    capture_traces=capture_traces,
                    timeout_s=timeout_s,
                    group=group,
                    on_result=receive,
                )
            except ProgramFailed as error:
                # Otherwise it is caused by the code, which has started once; pools call any end retryable.
                is_ours = error.details.get("stage") == "close" or isinstance(error, NoProcessAvailable)
                if instance.worktree.commit == self._seed or is_ours:
                    raise
                for position in tuple(missing):
                    on_result(position, self._without_paths(_cannot_run(error)))

    async def score(
        self,
        batch: Sequence[Example],
        results: Sequence[ResultDict],
        *,
        timeout_s: float | None = None,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """See `Program.score`; the seed commit's program scores all outputs."""
        async with self.instances.acquire(self._seed) as instance:
            await instance.running().score(batch, results, timeout_s=timeout_s, on_result=on_result)

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """See `Program.call`; the candidate's commit answers, the seed commit if there is no candidate."""
        name = "best_candidate" if method == "finalize" else "candidate"
        candidate = params.get(name)
        if candidate is None:
            async with self.instances.acquire(self._seed) as instance:
                return await instance.running().call(method, params)
        async with self.instances.acquire(named_commit(candidate)) as instance:
            own = {**params, name: program_candidate(instance.seed, candidate)}
            asked = params.get("components_to_update")
            if asked is not None:
                own["components_to_update"] = requested_from_program(asked, candidate, instance.seed)
            if method == "make_reflective_dataset":
                answer = await self._records(instance, own)
                dataset = by_requested_component(answer["dataset"], params["components_to_update"], candidate)
                return {**answer, "dataset": self.instances.state.without_paths(dataset)}
            answer = await instance.running().call(method, own)
            return answer if method != "finalize" else await asyncio.to_thread(self._finalized, instance, answer)

    def _without_paths(self, result: ResultDict) -> ResultDict:
        """Return the result with paths in its error and trajectory made relative; its output is unchanged."""
        shown = {name: result[name] for name in ("error", "trajectory") if name in result}
        return {**result, **self.instances.state.without_paths(shown)} if shown else result

    async def close(self) -> None:
        """End every commit's processes."""
        await self.instances.close()
        await asyncio.to_thread(self.instances.state.close)

    async def import_commits(self, bundles: Sequence[bytes]) -> list[str]:
        """Import git bundles, parents before children; return the full commit id of each.

        Raises:
            InvalidParams: one is not a bundle, or its parents are missing; those before it stay.
        """
        commits = []
        for at, bundle in enumerate(bundles):
            try:
                commits.append(await asyncio.to_thread(self.instances.repository.import_bundle, bundle))
            except GitError as error:
                problem = {"path": f"bundles[{at}]", "message": str(error)}
                raise InvalidParams(errors=[problem]) from None
        return commits

    async def outline(self, candidate: Candidate) -> str:
        """Return a bounded outline of the candidate's code for a model that requests a change.

        Raises:
            UnknownCandidate: its commit is missing.
        """
        commit = named_commit(candidate)
        repository = self.instances.repository
        if not await asyncio.to_thread(repository.has, commit):
            raise UnknownCandidate(f"there is no commit {commit} here", commit=commit)
        return await asyncio.to_thread(outline_of, repository, commit)

    async def _records(self, instance: Instance, params: dict[str, Any]) -> dict[str, Any]:
        """Return a reflective dataset; the adapter state passes from one commit's processes to the next one's."""
        refs = self._refs(instance)
        if refs is not None:
            given = params["eval_batch"]
            params = {**params, "eval_batch": {**given, "results": refs.incoming(given["results"])}}
        if "adapter_state" in self.capabilities and params.get("adapter_state") is None and self._state is not None:
            params = {**params, "adapter_state": self._state}
        try:
            answer = await instance.running().call("make_reflective_dataset", params)
        except TrajectoryExpired as error:
            raise error if refs is None else refs.expired(error) from None
        self._state = answer.get("adapter_state", self._state)
        return answer

    def _refs(self, instance: Instance) -> ProgramRefs | None:
        """Return the refs of one worktree, if its program makes any: other processes may make the same names."""
        if "refs" not in instance.running().capabilities:
            return None
        return ProgramRefs(instance.worktree.folder.name)

    def _finalized(self, instance: Instance, answer: dict[str, Any]) -> dict[str, Any]:
        left_out = copy_artifacts(self.instances.settings, instance.worktree)
        moved = copy_saved_program(self.instances.settings, instance.worktree)
        message = answer.get("message")
        if moved is not None and isinstance(message, str):
            message = message.replace(str(moved[0]), str(moved[1]))
        if left_out is not None:
            message = f"{message or ''}\n{left_out}".lstrip()
        return answer if message is None else {**answer, "message": message}


def _cannot_run(error: ProgramFailed) -> ResultDict:
    log = error.details.get("log_tail")
    details = {"type": "ProgramFailed", "message": error.message, "traceback": error.details.get("traceback")}
    return {
        "status": "program_error",
        "score": None,
        "output": None,
        "error": {
            **{name: text for name, text in details.items() if text is not None},
            **({"log": log} if log else {}),
        },
        "seconds": 0.0,
    }


OPEN_FILES = 10_240
"""Descriptors for many processes, each with several pipes."""


@dataclass(frozen=True)
class ExcludedFiles:
    """What of the user's folder is not in worktrees: uncommitted changes and submodules' files.

    `untracked`: the number of untracked files and folders that git does not ignore. `filters`: the user's files that
    pass through filters of git, which do not run, with these.
    """

    branch: str
    commit: str
    changed: list[str]
    submodules: list[str]
    untracked: int
    filters: list[str]

    def explain(self, error: ProgramFailed, server_folder: ServerFolder) -> ProgramFailed:
        """Return the error of a program that does not start, with advice if a part of it may not be committed."""
        if not self.changed and not self.untracked:
            return error
        message = server_folder.without_paths(error.message)
        details = {name: value for name, value in error.details.items() if name != "message"}
        advice = "candidates run from commits, which lack files and changes of this folder: git add, git commit"
        return ProgramFailed(f"{message}; {advice}", retryable=error.retryable, **details)


async def open_worktrees(settings: Settings, jails: JailFactory | None = None) -> tuple[WorktreeProgram, ExcludedFiles]:
    """Start the program of the checked-out commit in a worktree of its own. The caller closes it.

    Raises:
        SettingsError: there is no repository, or the settings do not fit it.
        ProgramFailed: it cannot start.
    """
    repository = await run_shielded(UserRepository, settings.root)
    branch, commit = await run_shielded(repository.head)
    tracked = await run_shielded(repository.files, commit)
    check_links(settings, tracked, repository.prefix)
    excluded = ExcludedFiles(
        branch,
        commit,
        await run_shielded(repository.changed),
        await run_shielded(repository.submodules, commit),
        await run_shielded(repository.untracked),
        await run_shielded(repository.filters, commit),
    )
    tree_dir = None if settings.tree_dir is None else settings.root / settings.tree_dir
    server_folder = ServerFolder(servers_folder(repository.git_dir, tree_dir))
    cache = cache_folder()
    if jails is not None:
        jails = jails.extend(
            hidden=(server_folder.folder.parent, cache / "trees"),
            readable=(settings.root, repository.top, repository.git_dir, cache / "environments"),
        )
    environments = await run_shielded(CommitEnvironments, repository, settings, commit, cache, jails)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(run_shielded, server_folder.close)
        await run_shielded(server_folder.open)
        await run_shielded(server_folder.sweep)
        if server_folder.only_server:
            await run_shielded(repository.sweep)
        raise_descriptor_limit(OPEN_FILES)
        instances = InstancePool(repository, settings, server_folder, environments, jails)
        undo.push_async_callback(instances.close)
        async with instances.acquire(commit) as seed:
            if seed.failed is not None:
                raise excluded.explain(seed.failed, server_folder)
            program = WorktreeProgram(instances, seed, branch)
        undo.pop_all()
        return program, excluded
