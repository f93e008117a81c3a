"""Publish a finished mutation: its commit message, and its branch here and on the remote, on both or on neither."""

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from evolverpc_common.git import GitError, GitTimeout
from evolverpc_common.shielded import run_shielded
from protocol.code import branch_of
from protocol.errors import ProgramFailed
from protocol.mutation import ApplyMutationParams, ChangeRequest, MutationName, Patch, Texts
from rpc_server.mutations.file_rules import rejected
from rpc_server.worktrees.repository import UserRepository

OF_CHANGE_REQUESTS = "^Mutation: change_request$"
"""Matches the commit message of a change request, whose first line is the subject."""

_MAX_SUBJECT = 72
_MAX_BODY = 20_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def commit_message(request: ApplyMutationParams, name: MutationName, summary: str, files: Sequence[str]) -> str:
    """Return subject, body and trailers; equal for equal input, as commit ids must be."""
    mutation = request.mutation
    if isinstance(mutation, ChangeRequest):
        lines = filter(None, map(_line, mutation.request.splitlines()))
        subject = _cut(next(lines, "Change the program"))
        body = "" if subject == mutation.request.strip() else mutation.request
    elif isinstance(mutation, Patch):
        subject, body = _cut(f"Apply a patch to {_listed(files)}"), ""
    elif isinstance(mutation, Texts):
        subject, body = _cut(f"Write the texts of {_listed(sorted(mutation.texts))}"), ""
    else:
        subject, body = _cut(f"Merge {branch_of(mutation.other)}"), ""
    trailers = f"Mutation: {mutation.kind}\nRun: {name.run}/{name.number}"
    paragraphs = [_plain(text)[:_MAX_BODY].strip() for text in (body, summary)]
    parts = [subject, *paragraphs, trailers]
    return "\n\n".join(part for part in parts if part) + "\n"


def _listed(names: Sequence[str]) -> str:
    first, *others = names
    return _line(first) + (f" and {len(others)} more" if others else "")


def _line(text: str) -> str:
    return " ".join(_plain(text).split())


def _plain(text: str) -> str:
    """Return the text as git accepts it in a message."""
    return _CONTROL.sub("", text.encode("utf-8", "replace").decode())


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SUBJECT else text[: _MAX_SUBJECT - 3] + "..."


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publisher:
    """Publishes branches. `remote`: the name of the remote that they are pushed to; None for none."""

    repository: UserRepository
    remote: str | None

    async def publish(self, branch: str, commit: str, bundle: bytes, answer: bytes) -> None:
        """Create the branch of a bundle and keep its answer; no two calls may have the same answer.

        Raises:
            BranchTaken: the branch exists.
            MutationRejected: stage `push`.
        """
        try:
            await run_shielded(self.repository.publish, bundle, answer)
            if self.remote is not None:
                await self._push(branch, commit, self.remote)
        except BaseException:
            try:
                await run_shielded(self.repository.withdraw, branch, answer)
            except (GitError, OSError) as error:
                logger.warning("the branch %s, whose mutation failed, cannot be removed: %s", branch, error)
            raise

    async def push_again(self, branch: str, commit: str) -> None:
        """Push the branch of an earlier call, which may have ended before it pushed.

        Raises:
            ProgramFailed: it cannot be pushed now; `retryable`, as the mutation itself is complete.
        """
        if self.remote is None:
            return
        try:
            await run_shielded(self.repository.push, commit, branch, self.remote)
        except GitError as error:
            raise ProgramFailed(
                f"{branch} is made, and cannot be pushed to {self.remote}: {error}",
                retryable=True,
                stage="push",
                log_tail="",
            ) from error

    async def _push(self, branch: str, commit: str, remote: str) -> None:
        try:
            await run_shielded(self.repository.push, commit, branch, remote)
        except (asyncio.CancelledError, GitError) as error:
            if isinstance(error, asyncio.CancelledError | GitTimeout):
                await self._unpush(branch, commit, remote)
            if isinstance(error, GitError):
                raise rejected("push", f"cannot push to {remote}: {error}") from error
            raise

    async def _unpush(self, branch: str, commit: str, remote: str) -> None:
        try:
            await run_shielded(self.repository.unpush, commit, branch, remote)
        except (GitError, OSError) as error:
            logger.warning("%s may still have %s: %s", remote, branch, error)
