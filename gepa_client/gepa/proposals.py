"""New texts proposed by the program itself: one call for each job, all of them at the same time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gepa_client.errors import BadResponse
from gepa_client.fleet import Answered, Fleet
from gepa_client.gepa.images import without_images
from gepa_client.journal.entries import PROPOSAL
from gepa_client.journal.gather_recorded import all_at_once
from gepa_client.journal.journal import Journal, Slot
from gepa_client.journal.requests import other_request
from gepa_client.transport.rpc import RpcClient
from gepa_client.transport.task_group import Job
from protocol import JsonValue

Records = Mapping[str, Sequence[Mapping[str, Any]]]
"""A reflective dataset: records by component."""

ProposalJob = tuple[dict[str, str], Records, list[str]]
"""A candidate, its reflective dataset and the components to update."""


@dataclass
class Proposals:
    """Asks the program for new texts (capability `proposals`); recorded answers are not asked for again.

    `call_timeout_s`: of one call.
    """

    fleet: Fleet
    journal: Journal
    call_timeout_s: float

    async def make(self, jobs: Sequence[ProposalJob]) -> list[dict[str, str] | Exception]:
        """New texts by component for each job, in order; the exception for a job that failed in the program.

        Raises:
            Interrupted: the run must stop. RpcError, ClientError: anything that is not the program's failure.
        """
        asked = [_params(*job) for job in jobs]
        about = "have the program propose new texts, job"
        requests = [other_request(PROPOSAL, f"{about} {at}", params) for at, params in enumerate(asked)]

        async def propose(at: int, slot: Slot, job: Job) -> JsonValue:
            async def send(client: RpcClient, call_id: str | None) -> Answered[dict[str, str]]:
                job.begun = True
                sees = client.offers("images")
                params = {name: value for name, value in asked[at].items() if name != "images" or sees}
                return Answered(await client.propose_new_texts(params, call_id=call_id, timeout_s=self.call_timeout_s))

            attempts = self.journal.attempts(slot, PROPOSAL)
            texts = await self.fleet.call(PROPOSAL, send, attempts, needs="proposals")
            unasked = sorted(set(texts) - set(jobs[at][2]))
            if unasked:
                raise BadResponse(f"the program proposed texts for components not asked for: {', '.join(unasked)}")
            return {**texts}

        return await all_at_once(self.journal, requests, propose)


def _params(candidate: dict[str, str], records: Records, components: list[str]) -> dict[str, Any]:
    dataset, images = without_images(records)
    params = {"candidate": candidate, "reflective_dataset": dataset, "components_to_update": components}
    return {**params, "images": images} if images else params
