"""Makes the branch of a finished mutation, here and on the remote that the settings name: on both, or on neither."""

import asyncio
import logging
from dataclasses import dataclass

from evolverpc_common.git import GitError, GitTimeout
from evolverpc_common.shielded import to_the_end
from protocol.errors import MutationRejected, ProgramFailed
from rpc_server.mutations.rejection import rejected
from rpc_server.worktrees.repository import Repository

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publisher:
    """`remote`: the name of the one that branches are pushed to; None for none."""

    repository: Repository
    remote: str | None

    async def publish(self, branch: str, commit: str, bundle: bytes, answer: bytes) -> None:
        """Make the branch of a bundle, with the answer that was given for it; no other call may give the same one.

        Raises:
            BranchTaken: it is there already.
            MutationRejected: stage `push`.
        """
        try:
            await to_the_end(self.repository.publish, bundle, answer)
            if self.remote is not None:
                await self._push(branch, commit, self.remote)
        except BaseException:
            try:
                await to_the_end(self.repository.withdraw, branch, answer)
            except (GitError, OSError) as error:
                logger.warning("the branch %s, whose mutation failed, cannot be removed: %s", branch, error)
            raise

    async def push_again(self, branch: str, commit: str) -> None:
        """Push what an earlier call has made, which it may not have come to.

        Raises:
            ProgramFailed: it cannot be pushed now, which takes nothing from what is done; `retryable`.
        """
        if self.remote is None:
            return
        try:
            await to_the_end(self.repository.push, commit, branch, self.remote)
        except GitError as error:
            raise ProgramFailed(
                f"{branch} is made, and cannot be pushed to {self.remote}: {error}",
                retryable=True,
                stage="push",
                log_tail="",
            ) from error

    async def _push(self, branch: str, commit: str, remote: str) -> None:
        try:
            await to_the_end(self.repository.push, commit, branch, remote)
        except asyncio.CancelledError:
            await self._unpush(branch, commit, remote)
            raise
        except GitTimeout as error:
            await self._unpush(branch, commit, remote)
            raise _not_pushed(remote, error) from error
        except GitError as error:
            raise _not_pushed(remote, error) from error

    async def _unpush(self, branch: str, commit: str, remote: str) -> None:
        """Take the branch off the remote again, where it may or may not be."""
        try:
            await to_the_end(self.repository.unpush, commit, branch, remote)
        except (GitError, OSError) as error:
            logger.warning("%s may still have %s: %s", remote, branch, error)


def _not_pushed(remote: str, error: GitError) -> MutationRejected:
    return rejected("push", f"cannot push to {remote}: {error}")
