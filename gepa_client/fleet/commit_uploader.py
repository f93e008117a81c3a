"""Commits that an endpoint lacks: brought there, each once, before the call that needs them is made again."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Protocol

from gepa_client.errors import Interrupted
from gepa_client.transport.rpc import RpcClient
from protocol.errors import UnknownCandidate

SHOWN = 12
"""Characters of a commit's id that are enough for people."""

REQUEST_SHARE = 0.5
"""The part of the largest request a server takes that bundles may fill; one that is larger goes alone."""


class Bundles(Protocol):
    """Where the commits of a run come from."""

    def leading_to(self, commit: str) -> list[tuple[str, str]]:
        """(commit, bundle in base64) of all that lead to this one, parents first; empty where it is not known."""
        ...


class NoBundles:
    """A run whose code does not change."""

    def leading_to(self, commit: str) -> list[tuple[str, str]]:  # noqa: ARG002 - the interface's parameters
        """Nothing is known."""
        return []


class Courier:
    """Brings commits to endpoints. Who needs one that is on its way to the same instance waits for it."""

    def __init__(self, bundles: Bundles) -> None:
        self._bundles = bundles
        self._there: set[tuple[str | None, str]] = set()
        self._on_the_way: defaultdict[str | None, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def bring(self, client: RpcClient, commit: str) -> None:
        """Have the endpoint import everything that leads to the commit and was not brought to it before.

        Raises:
            Interrupted: nobody has a bundle of it. RpcError, ClientError: the endpoint did not take them.
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
        async with self._on_the_way[instance]:
            missing = [(made, bundle) for made, bundle in chain if (instance, made) not in self._there]
            for part in _parts(missing, _limit(client)):
                await client.import_commits([bundle for _, bundle in part])
                self._there |= {(instance, made) for made, _ in part}


def lacking(error: Exception) -> str | None:
    """The commit that an endpoint says it does not have, where that is the error."""
    commit = error.details.get("commit") if isinstance(error, UnknownCandidate) else None
    return commit if isinstance(commit, str) else None


def _limit(client: RpcClient) -> float:
    if client.discovery is None:
        raise AssertionError("endpoints are discovered before they are called")
    return REQUEST_SHARE * client.discovery.limits.max_request_bytes


def _parts(bundles: Sequence[tuple[str, str]], limit: float) -> Iterator[list[tuple[str, str]]]:
    """The same in their order, as many at a time as one request may hold."""
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
