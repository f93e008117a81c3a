"""How a run is called in the names of its branches."""

import hashlib
import re
import secrets

BY_HAND = "by-hand"
"""Stands for all changes that `gepa-client mutate` made, where commands about branches take a run."""

LONGEST = 100
DIGEST = 8
_FIT = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{LONGEST - 1}}}")


def by_hand_name() -> str:
    """What stands for the run in the branch of one change made by hand: `by-hand-1f3a5c7e`."""
    return f"{BY_HAND}-{secrets.token_hex(4)}"


def run_in_names(run_id: str) -> str:
    """The run's id as the contract's `MutationName` takes it: as it is, or made fit and told apart by a digest."""
    if _FIT.fullmatch(run_id):
        return run_id
    digest = hashlib.blake2b(run_id.encode(), digest_size=DIGEST // 2).hexdigest()
    fit = re.sub(r"[^A-Za-z0-9_-]+", "-", run_id).strip("-_")[: LONGEST - DIGEST - 1]
    return f"{fit}-{digest}".lstrip("-")
