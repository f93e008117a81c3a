"""The first contact with the endpoints of a fleet: who answers, who leads, and whether the others serve the same."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gepa_client.errors import ClientError, ConnectionLost, Refused
from gepa_client.fleet.compatibility import Wanted, differences
from gepa_client.fleet.endpoint import Endpoint
from gepa_client.transport.error_format import summary
from gepa_client.transport.rpc import RESENDS
from protocol import DiscoverResult
from protocol.errors import RpcError

RENEWAL_S = 15.0
"""How long the beginning waits for a token that is to be renewed."""

RENEWAL_LOOK_S = 0.5


@dataclass(frozen=True)
class Met:
    """`answered`: those that did, in the given order, the leader first; `silent`: the others, with what kept them."""

    answered: list[tuple[Endpoint, DiscoverResult]]
    silent: list[tuple[Endpoint, Exception]]

    @property
    def leader(self) -> DiscoverResult:
        """What the first one said of itself."""
        return self.answered[0][1]


async def meet(
    endpoints: Sequence[Endpoint],
    wanted: Wanted | None,
    allow_mixed_programs: bool,
    on_token: Callable[[str], None],
    on_refused: Callable[[Endpoint, Exception], None],
) -> Met:
    """Ask all at the same time what they are; again, for a while, where all that is missing is a renewed token.

    `on_refused`: told of each endpoint that is waited for so.

    Raises:
        Refused: those that answer do not serve the same; all differences are named.
        RpcError, ClientError: none answers; with one endpoint, its error as it came.
    """
    resends = RESENDS if len(endpoints) == 1 else 0  # what is missed now is tried again while others work
    until = time.monotonic() + RENEWAL_S
    told: set[Endpoint] = set()
    while True:
        met = await _ask(endpoints, resends, on_token)
        waited_for = [(endpoint, error) for endpoint, error in met.silent if endpoint.is_renewed_after(error)]
        if met.answered or not waited_for or time.monotonic() >= until:
            break
        for endpoint, error in waited_for:
            if endpoint not in told:
                told.add(endpoint)
                on_refused(endpoint, error)
        await asyncio.sleep(RENEWAL_LOOK_S)
    if not met.answered:
        raise _nobody(met.silent)
    _agree(met, wanted, allow_mixed_programs)
    return met


async def _ask(endpoints: Sequence[Endpoint], resends: int, on_token: Callable[[str], None]) -> Met:
    met = Met([], [])
    answers = await asyncio.gather(*(_contact(endpoint, resends, on_token) for endpoint in endpoints))
    for endpoint, answer in zip(endpoints, answers, strict=True):
        if isinstance(answer, Exception):
            met.silent.append((endpoint, answer))
        else:
            met.answered.append((endpoint, answer))
    return met


async def _contact(endpoint: Endpoint, resends: int, on_token: Callable[[str], None]) -> DiscoverResult | Exception:
    await endpoint.client.__aenter__()
    try:
        endpoint.read_token(on_token)
        return await endpoint.client.discover(resends=resends)
    except (RpcError, ClientError) as error:
        return error


def _nobody(silent: list[tuple[Endpoint, Exception]]) -> Exception:
    """What to raise where none answers: the only error as it came, or one that tells of all."""
    if len(silent) == 1:
        return silent[0][1]
    told = "\n  ".join(f"{endpoint.url}: {summary(error)}" for endpoint, error in silent)
    return ConnectionLost(f"none of the {len(silent)} endpoints answers:\n  {told}", sent=False)


def _agree(met: Met, wanted: Wanted | None, allow_mixed_programs: bool) -> None:
    splits = wanted(met.leader) if wanted is not None else ()
    told = []
    for endpoint, discovery in met.answered[1:]:
        if found := differences(met.leader, discovery, splits, allow_mixed_programs=allow_mixed_programs):
            told.append(f"{endpoint.url}: {'; '.join(found)}")
    if told:
        first = met.answered[0][0]
        raise Refused(f"the endpoints do not serve the same as {first.url}:\n  " + "\n  ".join(told))
