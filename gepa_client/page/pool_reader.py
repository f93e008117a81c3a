"""Read the candidates of a run as they enter the pool."""

from gepa_client.evolution.names import component_texts
from gepa_client.journal.entries import CandidateRecord
from gepa_client.journal.requests import SHOWN, digest_of
from gepa_client.journal.store import Store
from gepa_client.page.event_log import EventLog
from gepa_client.page.initial_rows import InitialRows
from gepa_client.page.page_fact import sent_text
from gepa_client.page.search_events import Candidate, CodeVersion
from protocol.code import code_at

SENT_AT_ONCE = 50
"""Candidates after which those that were read are sent: a page draws the first while the others are read."""


class PoolReader:
    """The pool of a run; `read` adds what is new.

    `candidates`: by index. `digests`: of their texts, by the beginning of it. `proposed`: the same of all proposals
    that have texts. `mutations`: the number of the change of code that made a commit.
    """

    def __init__(self, store: Store, run_id: str, log: EventLog, rows: InitialRows) -> None:
        self._store, self._id, self._log, self._rows = store, run_id, log, rows
        self.candidates: list[CandidateRecord] = []
        self.digests: dict[str, str | None] = {}
        self.proposed: dict[str, str] = {}
        self.mutations: dict[str, int] = {}

    def read(self) -> None:
        """Read new candidates, and the last one again, which the driver may complete."""
        if not self._rows.val:
            return
        found = self._store.candidates(self._id, max(0, len(self.candidates) - 1))
        for sent, kept in enumerate(found):
            self.candidates[kept.index :] = [kept]
            digest = digest_of(kept.texts)
            self.digests.setdefault(digest[:SHOWN], digest)
            self._log.add(self._event(kept, digest[:SHOWN]))
            if sent % SENT_AT_ONCE == SENT_AT_ONCE - 1:
                self._log.published()

    def _event(self, kept: CandidateRecord, digest: str) -> Candidate:
        branch, commit = code_at(kept.texts)
        code = None
        if commit is not None:
            code = CodeVersion(branch=branch, commit=commit, mutation=self.mutations.get(commit))
        return Candidate(
            at=kept.number,
            index=kept.index,
            digest=digest,
            parents=kept.parents,
            iteration=kept.iteration,
            score=kept.score,
            metric_calls=kept.metric_calls,
            found=kept.found,
            cost_usd=kept.cost_usd,
            objective_scores=kept.objective_scores,
            scores=list(map(kept.scores.get, self._rows.names)),
            texts={name: sent_text(text) for name, text in component_texts(kept.texts).items()},
            code=code,
        )
