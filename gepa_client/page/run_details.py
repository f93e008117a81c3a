"""What a page loads of a run when it is asked for: cells, texts, proposals, the explanation, the list of events.

The page's own server and the service answer the same requests, `RUN/NAME?QUERY`, with the same forms.
"""

import re
from collections.abc import Mapping
from functools import cached_property

from gepa_client.analysis.explanation import Explanation, explain
from gepa_client.analysis.proposals import Excerpt
from gepa_client.journal.store import Store
from gepa_client.page.candidate_details import CandidateReader, Cell, NotThere
from gepa_client.page.event_list import EventList, event_list
from gepa_client.page.proposal_details import ProposalShown, proposal
from gepa_client.page.run_list import RunList

DETAILS = ("cell", "text", "proposal", "explanation", "history")

AnyPageAnswer = RunList | Cell | Excerpt | ProposalShown | Explanation | EventList


class BadQuery(Exception):
    """A query has no whole number where one is needed."""


class RunDetails:
    """Reads the details of one run; what it has read to find results serves later requests."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._id = store, run_id

    def read(self, name: str, query: Mapping[str, str]) -> object:
        """Return the detail of this name, one of `AnyPageAnswer`.

        Raises:
            BadQuery: a number is missing, or is none. NotThere: the run has no such thing. JournalError: as the store.
        """
        store, run_id = self._store, self._id
        until = _number(query, "until") if "until" in query else None
        match name:
            case "cell":
                candidate, row, part = _number(query, "candidate"), _number(query, "row"), query.get("part")
                start = _number(query, "from", 0)
                kept = self._candidates
                return kept.cell(candidate, row) if part is None else kept.part(candidate, row, part, start)
            case "text":
                candidate, start = _number(query, "candidate"), _number(query, "from", 0)
                return self._candidates.text(candidate, query.get("component", ""), start)
            case "proposal":
                return proposal(store, run_id, _number(query, "at"), all_rows=query.get("rows") == "all")
            case "history":
                words, after = query.get("words", ""), _number(query, "after") if "after" in query else None
                return event_list(store, store.run(run_id), after=after, words=words, until=until)
            case _:
                if (found := explain(store, store.run(run_id), until)) is None:
                    raise NotThere("the seed has not been scored")
                return found

    @cached_property
    def _candidates(self) -> CandidateReader:
        return CandidateReader(self._store, self._id)


def _number(query: Mapping[str, str], name: str, default: int | None = None) -> int:
    given = query.get(name)
    if given is None and default is not None:
        return default
    if given is None or re.fullmatch(r"\d{1,15}", given) is None:
        raise BadQuery(f"{name} is a whole number")
    return int(given)
