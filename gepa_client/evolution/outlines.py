"""What a reflection model is told of the code of each commit: asked for once per commit, and recorded."""

from collections.abc import Sequence

from gepa_client.fleet import Answered
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.journal.entries import OUTLINE
from gepa_client.journal.gather_recorded import all_at_once
from gepa_client.journal.journal import Slot
from gepa_client.journal.requests import other_request
from gepa_client.transport.rpc import RpcClient
from gepa_client.transport.task_group import Job
from protocol import Candidate, JsonValue
from protocol.code import commit_of


class Outlines:
    """Asks an endpoint that changes code; what was answered once is known for the rest of the run."""

    def __init__(self, adapter: RemoteAdapter) -> None:
        self._adapter = adapter
        self._known: dict[str | None, str] = {}

    async def of(self, candidates: Sequence[Candidate]) -> list[str | Exception]:
        """The outline of each candidate's code, or why there is none.

        Raises:
            Interrupted: nothing came of it. RpcError, ClientError: the call itself is wrong.
        """
        commits = [commit_of(candidate) for candidate in candidates]
        asked = {
            commit: candidate
            for commit, candidate in reversed(list(zip(commits, candidates, strict=True)))
            if commit not in self._known
        }
        order = sorted(asked, key=commits.index)  # as GEPA asks
        journal = self._adapter.journal

        async def ask(at: int, slot: Slot, job: Job) -> JsonValue:
            async def send(client: RpcClient, call_id: str | None) -> Answered[str]:
                job.begun = True
                timeout_s = self._adapter.call_timeout_s
                return Answered(await client.outline_code(asked[order[at]], call_id=call_id, timeout_s=timeout_s))

            return await self._adapter.fleet.call(
                "outline_code", send, journal.attempts(slot, OUTLINE), needs="mutations"
            )

        requests = [other_request(OUTLINE, f"outline the code at {commit}", commit) for commit in order]
        answers = dict(zip(order, await all_at_once(journal, requests, ask) if requests else [], strict=True))
        self._known |= {commit: answer for commit, answer in answers.items() if isinstance(answer, str)}
        return [self._known[commit] if commit in self._known else answers[commit] for commit in commits]
