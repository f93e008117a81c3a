"""What users asked of a run that is in force now; GEPA's thread alone uses it."""

from collections import deque
from dataclasses import dataclass, field

from gepa_client.gepa.reflection_strategies import TextProposal
from gepa_client.journal.entries import PROPOSAL
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import request_key
from gepa_client.journal.steer_entries import ClearHints, Drop, Hint, Pin, Propose, SteerEntry, Unpin, Withdraw
from gepa_client.steering.candidate_pool import State, leave_fronts


@dataclass
class ProposalByHand:
    """Texts that a user gave for some components of a parent. `tries`: iterations that began with it."""

    request: str
    author: str
    parent: int
    texts: dict[str, str]
    tries: int = 0


@dataclass
class _HintInForce:
    text: str
    left: int | None


@dataclass
class InForce:
    """`proposals`: those that are not evaluated yet; `current`: the one that this iteration evaluates."""

    pinned: int | None = None
    dropped: set[int] = field(default_factory=set)
    proposals: deque[ProposalByHand] = field(default_factory=deque)
    current: ProposalByHand | None = None
    _hints: list[_HintInForce] = field(default_factory=list)

    def hints(self) -> tuple[str, ...]:
        """Return the texts that prompts of reflection show now."""
        return tuple(hint.text for hint in self._hints)

    def reflected(self, proposals: int) -> None:
        """Note that so many proposals were asked for with these hints."""
        for hint in self._hints:
            hint.left = None if hint.left is None else hint.left - proposals
        self._hints = [hint for hint in self._hints if hint.left is None or hint.left > 0]

    def begin(self, proposal: ProposalByHand) -> None:
        """Note that this iteration evaluates a proposal by hand."""
        self.current = proposal
        proposal.tries += 1

    def propose(self, journal: Journal) -> TextProposal:
        """Return the texts that this iteration evaluates, as an answer of the journal like those of reflection.

        Raises:
            Interrupted: as `Journal.ask`.
        """
        found = self.proposals.popleft()
        self.current = None
        about = f"propose the texts of request {found.request} by {found.author}"
        [asked] = journal.ask([request_key(PROPOSAL, about, found.texts)])
        if asked.entry is None:
            with journal.executing([asked]):
                journal.record((asked, dict(found.texts)))
                journal.settle()
        return TextProposal(dict(found.texts), by_hand=found.author, request=found.request)

    def apply(self, entry: SteerEntry, state: State) -> None:
        """Put a request in force; limits of the run are not part of it."""
        match entry.action:
            case Propose(texts=texts, parent=parent):
                self.proposals.append(ProposalByHand(entry.id, entry.author, parent or 0, dict(texts)))
            case Withdraw(request=request):
                self.proposals = deque(each for each in self.proposals if each.request != request)
            case Pin(candidate=index):
                self.pinned = index
            case Unpin():
                self.pinned = None
            case Drop(candidate=index):
                self.dropped.add(index)
                leave_fronts(state, index, self.dropped)
            case Hint(text=text, proposals=proposals):
                self._hints.append(_HintInForce(text, proposals))
            case ClearHints():
                self._hints = []
