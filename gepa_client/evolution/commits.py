"""The commits that a run's mutations made: what each comes from, the bundle that carries it, what it leaves unused."""

from dataclasses import dataclass

from gepa_client.journal.mutation_entry import MutationEntry
from protocol import Candidate
from protocol.code import commit_of


@dataclass(frozen=True)
class _Made:
    parents: tuple[str, ...]
    bundle: str | None
    unused: frozenset[str]


class Commits:
    """Filled from what the journal recorded, in a replay as in the run itself."""

    def __init__(self) -> None:
        self._made: dict[str, _Made] = {}

    def learn(self, entry: MutationEntry) -> None:
        """A mutation was asked for; where it made a commit, that is known from now on."""
        made = entry.applied
        if made is None:
            return
        parents = tuple(parent for parent in (entry.parent, entry.other) if parent is not None)
        unused = (self._unused_at(entry.parent) | set(made.components_removed)) - set(made.components_added)
        self._made.setdefault(made.commit, _Made(parents, made.bundle, frozenset(unused)))

    def leading_to(self, commit: str) -> list[tuple[str, str]]:
        """(commit, bundle in base64) of all that lead to this one from where the run began, parents first.

        Empty where one of them has no bundle, or the run did not make the commit.
        """
        chain = self.bundles(commit)
        bundles = [(each, bundle) for each, bundle in chain if bundle is not None]
        return bundles if len(bundles) == len(chain) else []

    def bundles(self, commit: str) -> list[tuple[str, str | None]]:
        """The same as far as the run made them, None for a bundle that no server gave."""
        return [(each, self._made[each].bundle) for each in self._made_up_to(commit)]

    def line(self, candidate: Candidate) -> set[str]:
        """The commit of the candidate's code and all it comes from, as far as the run knows."""
        commit = commit_of(candidate)
        if commit is None:
            return set()
        found = {commit}
        for each in self._made_up_to(commit):
            found |= {each, *self._made[each].parents}
        return found

    def unused(self, candidate: Candidate) -> frozenset[str]:
        """The components, added ones too, that the candidate's code does not use any more."""
        commit = commit_of(candidate)
        return self._unused_at(commit) if commit is not None else frozenset()

    def _unused_at(self, commit: str) -> frozenset[str]:
        made = self._made.get(commit)
        return made.unused if made is not None else frozenset()

    def _made_up_to(self, commit: str) -> list[str]:
        """The commit and those it comes from that the run made, parents first."""
        order: list[str] = []
        seen: set[str] = set()
        waiting = [(commit, False)]
        while waiting:
            each, has_its_parents = waiting.pop()
            if has_its_parents:
                order.append(each)
            elif each in self._made and each not in seen:
                seen.add(each)
                waiting.append((each, True))
                waiting += [(parent, False) for parent in reversed(self._made[each].parents)]
        return order
