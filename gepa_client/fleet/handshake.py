"""The first contact with the endpoints of a fleet, and whether one agrees with the one that leads."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from evolverpc_common.display_text import plain
from gepa_client.errors import ClientError
from gepa_client.fleet.endpoint import Endpoint
from gepa_client.transport.rpc_client import RESENDS
from protocol import DiscoverResult
from protocol.code import CODE_COMPONENTS, GIT_BRANCH, code_at
from protocol.discovery import TYPESCRIPT
from protocol.errors import RpcError

OWN_RECORDS = "reflective_datasets"
"""The capability of a program that makes the records of reflection itself."""

OWN_SERVER = "evolverpc"
"""The name of the servers of this project; their digests cover the files of the program."""

SplitChoice = Callable[[DiscoverResult], list[str]]
"""Returns the names of the splits that a run uses, of those a server declares."""

RENEWAL_S = 15.0
"""Seconds to wait at the start for a token that is about to be renewed."""

RENEWAL_POLL_S = 0.5


async def first_answers(
    endpoints: Sequence[Endpoint], on_token: Callable[[str], None], on_refused: Callable[[Endpoint, Exception], None]
) -> dict[Endpoint, DiscoverResult | Exception]:
    """Discover all endpoints at the same time; repeat for a while if only a renewed token is missing.

    `on_refused`: called once with each endpoint that is waited for in this way. Returns what each declares, or why it
    does not, in the order given.
    """
    resends = RESENDS if len(endpoints) == 1 else 0  # silent endpoints are tried again while others work
    until = time.monotonic() + RENEWAL_S
    reported: set[Endpoint] = set()

    async def discover(endpoint: Endpoint) -> DiscoverResult | Exception:
        await endpoint.client.__aenter__()
        try:
            endpoint.client.read_token(on_token)
            return await endpoint.client.discover(resends=resends)
        except (RpcError, ClientError) as error:
            return error

    while True:
        answers = dict(zip(endpoints, await asyncio.gather(*map(discover, endpoints)), strict=True))
        failed = {endpoint: answer for endpoint, answer in answers.items() if isinstance(answer, Exception)}
        waited_for = {endpoint: error for endpoint, error in failed.items() if endpoint.is_renewed_after(error)}
        if len(failed) < len(answers) or not waited_for or time.monotonic() >= until:
            return answers
        for endpoint, error in waited_for.items():
            if endpoint not in reported:
                reported.add(endpoint)
                on_refused(endpoint, error)
        await asyncio.sleep(RENEWAL_POLL_S)


def differences(
    leader: DiscoverResult, other: DiscoverResult, splits: Iterable[str], *, allow_mixed_programs: bool = False
) -> list[str]:
    """Return how `other` differs from `leader`, one phrase each; empty if they agree.

    Compared are the programs' names (unless `allow_mixed_programs`), the components' names, the commit that the code
    starts from (on any branch), the digests of `splits`, the program's version where both declare one, whether batches
    must stay whole, and whether the program makes its own records.
    """
    found = []
    names = (leader.program.name, other.program.name)
    if names[0] != names[1] and not allow_mixed_programs:
        found.append(f"program: {names[1]} instead of {names[0]} (`allow_mixed_programs` accepts other names)")
    ours, theirs = ({part.name for part in each.program.components} for each in (leader, other))
    if ours != theirs:
        without_trees = {GIT_BRANCH} <= ours - theirs <= set(CODE_COMPONENTS)
        hint = " (start it with --trees)" if without_trees else ""
        found.append(f"components: {_names(theirs)} instead of {_names(ours)}{hint}")
    else:
        seeds = [each.program.seed_candidate for each in (leader, other)]
        commits = [code_at(seed)[1] or seed.get(GIT_BRANCH) for seed in seeds]  # the whole text if it is malformed
        if commits[0] != commits[1]:
            found.append(f"git_branch: commit {commits[1]} instead of {commits[0]}")
    for split in splits:
        known = leader.datasets.get(split)
        here = other.datasets.get(split)
        if known is not None and here is None:
            found.append(f"split {split}: it has none")
        elif known is not None and here is not None and known.digest != here.digest:
            found.append(f"split {split}: other rows (digest {here.digest} instead of {known.digest})")
    versions = (leader.program.version, other.program.version)
    if None not in versions and versions[0] != versions[1]:
        found.append(f"program version: {versions[1]} instead of {versions[0]}")
    if leader.limits.whole_batches != other.limits.whole_batches:
        wants = ("takes single examples", "wants whole batches")
        found.append(
            f"batches: it {wants[other.limits.whole_batches]}, the first server {wants[leader.limits.whole_batches]}"
        )
    own = [OWN_RECORDS in each.capabilities for each in (leader, other)]
    if own[0] != own[1]:
        makes = ("makes no records of its own", "makes its own records")
        found.append(f"records: it {makes[own[1]]}, the first server {makes[own[0]]}")
    return found


def lacking(discovery: DiscoverResult, example_timeout_s: float | None) -> list[str]:
    """Return why a server cannot be given this limit on the time of an example; empty if it can, or need not."""
    if example_timeout_s is None or "example_timeout" in discovery.capabilities:
        return []
    return ["it does not offer `example_timeout`, which `example_timeout_s` needs"]


def changed_since_start(discovery: DiscoverResult) -> str | None:
    """Return a warning if files of the program were changed after the server loaded it; None if none is known."""
    changed = discovery.program.changed_files
    if not changed:
        return None
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    name = plain(changed[0], limit=80)
    return f"{name}{more} changed after the server started, which runs the program as it was then: start it again"


def digests_differ(leader: DiscoverResult, other: DiscoverResult) -> bool:
    """Whether the programs' digests differ: the code may, or only a setting of one machine.

    Servers of another name or language compute digests in another way; those are not compared.
    """
    ours, theirs = code_of(leader), code_of(other)
    return ours is not None and theirs is not None and ours != theirs and ours[:2] == theirs[:2]


def has_unknown_code(discovery: DiscoverResult) -> bool:
    """Return whether nothing shows which code the program has."""
    return discovery.program.version is None and discovery.program.digest is None


def code_of(discovery: DiscoverResult) -> tuple[str, str, str] | None:
    """Return what is the same where the same code runs: the server's name, how it computes digests, and the digest.

    None without a digest. The server in Python states the language of the program that it runs.
    """
    server, digest = discovery.server, discovery.program.digest
    ours = server.name == OWN_SERVER and server.language != TYPESCRIPT
    return None if digest is None else (server.name, "python" if ours else server.language, digest)


def same_code(one: DiscoverResult, other: DiscoverResult) -> bool:
    """Return whether two servers surely run the same code: their digests are equal, and such as our servers make.

    What the digest of another server covers is not known, so an equal one shows nothing.
    """
    return one.server.name == OWN_SERVER and code_of(one) is not None and code_of(one) == code_of(other)


def _names(components: set[str]) -> str:
    return ", ".join(sorted(components)) or "none"
