"""Which change of code each candidate is, and which changes came to nothing."""

from evolverpc_common.printed_commands import command
from gepa_client.journal.run_events import CandidateFound, Mutated, MutationRejected, MutationStarted
from gepa_client.journal.store_factory import named_store
from gepa_client.report.record import RunRecord
from protocol.code import code_at

DIFF_SHOWN = 400
"""Lines of a kept change's diff that a report shows; the command that shows all of them is named below it."""

REFUSED_DIFF_SHOWN = 60
"""The same of a change that was not kept."""

REFUSED_SHOWN = 50
"""Changes that were not kept which a report shows, the last ones."""


def change_of(record: RunRecord, candidate: CandidateFound) -> Mutated | None:
    """The change of code that made this candidate; None where it runs the code of a parent, or the seed's."""
    commit = _commit(candidate)
    if commit is None or any(_commit(record.candidates[parent]) == commit for parent in candidate.parents):
        return None
    return next((made for made in _made(record) if made.commit == commit), None)


def left_out(record: RunRecord) -> str | None:
    """What a report says of the changes that it does not show; None where it shows all."""
    count = len(not_kept(record)) - REFUSED_SHOWN
    return f"{count} earlier ones are left out; `{_branches(record)}` lists them" if count > 0 else None


def not_kept(record: RunRecord) -> list[Mutated | MutationRejected]:
    """Every change that no candidate of the pool runs, in the order they were tried."""
    kept = {_commit(candidate) for candidate in record.candidates}
    return [
        mutation
        for mutation in record.mutations
        if isinstance(mutation, MutationRejected) or mutation.commit not in kept
    ]


def origin(mutation: MutationStarted | Mutated | MutationRejected) -> str:
    """`candidate 3`, or `candidates 3 and 5, merged`."""
    parents = [str(parent) for parent in mutation.parents]
    if mutation.kind == "merge":
        return f"candidates {' and '.join(parents)}, merged"
    return f"candidate {parents[0]}" if parents else "the seed"


def outcome(mutation: Mutated | MutationRejected) -> str:
    """What became of a change that was not kept, in one line without markup."""
    if isinstance(mutation, MutationRejected):
        return f"rejected at stage {mutation.stage}: {mutation.reason}"
    return "made, but not kept: not better on its minibatch, or the run ended first"


def all_of_it(record: RunRecord, mutation: Mutated | MutationRejected) -> str:
    """The command that shows the whole of its diff."""
    return _branches(record, "--diff", str(mutation.number))


def _branches(record: RunRecord, *words: str) -> str:
    if record.started is None:
        return command("branches", "RUN", *words, store=None)
    return command("branches", record.started.run_id, *words, store=named_store(record.started.store))


def _made(record: RunRecord) -> list[Mutated]:
    return [mutation for mutation in record.mutations if isinstance(mutation, Mutated)]


def _commit(candidate: CandidateFound) -> str | None:
    return code_at(candidate.texts)[1]
