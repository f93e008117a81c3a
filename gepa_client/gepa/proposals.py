"""New texts proposed by the program itself: one call for each job, all at the same time."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from gepa_client.errors import BadResponse
from gepa_client.fleet import Fleet
from gepa_client.gepa.images import without_images
from gepa_client.journal.entries import PROPOSAL
from gepa_client.journal.journal import Journal, KeyedCall, gather_recorded
from gepa_client.journal.requests import request_key
from gepa_client.transport.calls import Call, Reply
from gepa_client.transport.responses import validated
from protocol import JsonValue, ProposeNewTextsResult

Records = Mapping[str, Sequence[Mapping[str, Any]]]
"""A reflective dataset: records by component."""

ProposalJob = tuple[dict[str, str], Records, list[str]]
"""A candidate, its reflective dataset and the components to update."""


async def propose_new_texts(
    fleet: Fleet, journal: Journal, jobs: Sequence[ProposalJob], call_timeout_s: float
) -> list[dict[str, str] | Exception]:
    """Return new texts by component for each job, in order; the exception for a job that failed in the program.

    Endpoints with the capability `proposals` are asked; recorded answers are not requested again.

    Raises:
        Interrupted: the run must stop. RpcError, ClientError: anything that is not the program's failure.
    """
    calls = []
    for at, job in enumerate(jobs):
        params = _params(*job)
        call = Call(
            "propose_new_texts",
            params,
            lambda answer: Reply(validated(ProposeNewTextsResult, answer).texts),
            about=PROPOSAL,
            needs="proposals",
            timeout_s=call_timeout_s,
            optional={"images": "images"},
        )
        key = request_key(PROPOSAL, f"have the program propose new texts, job {at}", params)
        calls.append(KeyedCall(key, call, functools.partial(_checked, job[2])))
    return await gather_recorded(journal, fleet, calls)


def _params(candidate: dict[str, str], records: Records, components: list[str]) -> dict[str, Any]:
    dataset, images = without_images(records)
    params = {"candidate": candidate, "reflective_dataset": dataset, "components_to_update": components}
    return {**params, "images": images} if images else params


def _checked(components: list[str], texts: dict[str, str]) -> JsonValue:
    """Return the texts as JSON. Raises `BadResponse` if one is for a component that was not requested."""
    if other := sorted(set(texts) - set(components)):
        raise BadResponse(f"the program proposed texts for components not asked for: {', '.join(other)}")
    return {**texts}
