"""The commitment to the test rows: digests of their ids and contents, recorded before the first iteration."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from gepa_client.journal.entries import COMMITMENT
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import digest_of, request_key


class Commitment(BaseModel):
    """What is committed to. `digest`: of all that follows, to be published; `rows`: a digest of each row, in order.

    `held`: the digest that the server declares of the split, if it holds the rows: their contents may not be shown.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    digest: str
    rows: list[str]
    held: str | None


def commitment_of(rows: Sequence[dict[str, Any]], held: str | None) -> Commitment:
    """Return the commitment to rows as the journal holds them (`id`, `data`, and `split` if the server holds them)."""
    digests = [digest_of(row) for row in rows]
    return Commitment(digest=digest_of([COMMITMENT, digests, held]), rows=digests, held=held)


def record_commitment(journal: Journal, commitment: Commitment) -> None:
    """Queue the commitment as an entry, unless it is recorded.

    Raises:
        Interrupted: another commitment is recorded.
    """
    stream = journal.stream(COMMITMENT)
    [request] = stream.ask([request_key(COMMITMENT, "commit to the test rows", commitment.digest)])
    if not request.recorded:
        stream.record((request, commitment.model_dump()))


def recorded_commitment(journal: Journal) -> Commitment | None:
    """Return the commitment of a run; None if it has no test rows, or began with a version that made none."""
    entry = journal.storage.read(COMMITMENT, 0)
    return Commitment.model_validate_json(entry.answer) if entry is not None else None
