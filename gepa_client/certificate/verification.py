"""Check a certificate against the record of its run: derive every number again, from the record alone."""

import json
from collections.abc import Iterator
from typing import Any

from gepa_client.certificate.certificate import Certificate, certify
from gepa_client.errors import NoCertificate
from gepa_client.journal.entries import COMMITMENT, SEARCH, StoredRun
from gepa_client.journal.soundness import damage
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE

SHOWN = 60
"""Characters of a value that are shown."""


def mismatches(store: Store, run: StoredRun, claimed: dict[str, Any]) -> list[str]:
    """Return a line for each fault of a certificate; none if all of it follows from the record of the run.

    `claimed`: the certificate, as JSON.

    Raises: what the store raises.
    """
    found = damage(store, run.id)
    if found is not None:
        return [f"the journal of run {run.id} is damaged: {found}"]
    if not _committed_first(store, run.id):
        return ["the journal committed to the test rows after the search had begun"]
    try:
        derived = certify(store, run)
    except NoCertificate as error:
        return [f"the record of run {run.id} supports no certificate: {error}"]
    return differences(claimed, derived)


def differences(claimed: dict[str, Any], derived: Certificate) -> list[str]:
    """Return a line such as `test.rows: 60, but the record gives 59` for each member that differs."""
    wrong, right = dict(leaves(claimed)), dict(leaves(derived.model_dump(mode="json")))
    return [
        f"{'.'.join(place)}: {_shown(wrong.get(place))}, but the record gives {_shown(right.get(place))}"
        for place in {**right, **wrong}
        if wrong.get(place) != right.get(place)
    ]


def leaves(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the place and the JSON of every value in a JSON value that is no object or list, or is an empty one.

    Whole numbers have no fraction, as other writers of JSON have it: 1.0 is 1.
    """
    if isinstance(value, dict | list) and value:
        named = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in named:
            yield from leaves(part, (*place, str(name)))
    else:
        yield place, json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)


def _shown(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}..."


def _committed_first(store: Store, run_id: str) -> bool:
    """Whether no entry of the search stands before the commitment in the order of its writer."""
    sealed = store.seals(run_id, COMMITMENT, 0, 1)
    if not sealed:
        return True  # no certificate then, for another reason
    start = 0
    while page := store.seals(run_id, SEARCH, start, PAGE):
        if any(one.owner == sealed[0].owner and (one.seq or 0) < (sealed[0].seq or 0) for one in page):
            return False
        start = page[-1].number + 1
    return True
