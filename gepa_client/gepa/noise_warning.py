"""The report on a program that is wrongly taken to be deterministic; apart from GEPA, which a check does not load."""

from collections.abc import Sequence

from gepa_client.gepa.row_loaders import AnyRow


def noise_warning(row: AnyRow, scores: Sequence[float]) -> str | None:
    """Return what to report of a program that is taken to be deterministic; None if its scores on the row are equal."""
    other = next((score for score in scores if score != scores[0]), None)
    if other is None:
        return None
    return (
        f"the program is taken to be deterministic, but row {row.id} scored {scores[0]:g} and then {other:g} with the "
        "same candidate: reused results hide such noise; a run with `deterministic` set to false evaluates each row "
        "anew"
    )
