"""Upload commits that an endpoint lacks, each once, before the call that needs them is made again."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Protocol

from gepa_client.errors import Interrupted
from gepa_client.transport.rpc import RpcClient
from protocol.errors import UnknownCandidate

SHOWN = 12
"""Characters of a commit's id in messages."""

REQUEST_SHARE = 0.5
"""The part of the largest accepted request that bundles may fill; a larger bundle is sent alone."""


class BundleSource(Protocol):
    """The source of a run's commits."""

    def leading_to(self, commit: str) -> list[tuple[str, str]]:
        """Return (commit, bundle in base64) of all that lead to this one, parents first; empty if it is unknown."""
        ...


class NoBundles:
    """A run whose code does not change."""

    def leading_to(self, commit: str) -> list[tuple[str, str]]:  # noqa: ARG002 - the interface's parameters
        """Return nothing."""
        return []


class CommitUploader:
    """Uploads commits to endpoints; a second call that needs a commit waits for the upload under way."""

    def __init__(self, bundles: BundleSource) -> None:
        self._bundles = bundles
        self._uploaded: set[tuple[str | None, str]] = set()
        self._locks: defaultdict[str | None, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def upload(self, client: RpcClient, commit: str) -> None:
        """Have the endpoint import everything that leads to the commit and was not uploaded to it before.

        Raises:
            Interrupted: the run has no bundle of it. RpcError, ClientError: the endpoint did not accept them.
        """
        chain = self._bundles.leading_to(commit)
        if not chain:
            where = client.url.removesuffix("/rpc")
            raise Interrupted(
                "paused",
                f"{where} lacks commit {commit[:SHOWN]}, and the run has no bundle of it: fetch it into the repository "
                "there, or leave this endpoint out",
            )
        instance = client.instance_id
        async with self._locks[instance]:
            missing = [(made, bundle) for made, bundle in chain if (instance, made) not in self._uploaded]
            for part in _parts(missing, _limit(client)):
                await client.import_commits([bundle for _, bundle in part])
                self._uploaded |= {(instance, made) for made, _ in part}


def missing_commit(error: Exception) -> str | None:
    """Return the commit that the endpoint lacks, if that is the error."""
    commit = error.details.get("commit") if isinstance(error, UnknownCandidate) else None
    return commit if isinstance(commit, str) else None


def _limit(client: RpcClient) -> float:
    if client.discovery is None:
        raise AssertionError("endpoints are discovered before they are called")
    return REQUEST_SHARE * client.discovery.limits.max_request_bytes


def _parts(bundles: Sequence[tuple[str, str]], limit: float) -> Iterator[list[tuple[str, str]]]:
    """Yield them in order, as many at a time as one request may hold."""
    part: list[tuple[str, str]] = []
    size = 0
    for commit, bundle in bundles:
        if part and size + len(bundle) > limit:
            yield part
            part, size = [], 0
        part.append((commit, bundle))
        size += len(bundle)
    if part:
        yield part
