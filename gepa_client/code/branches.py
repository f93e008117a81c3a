"""How a run is called in the names of its branches."""

import hashlib
import re

LONGEST = 100
DIGEST = 8
_FIT = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{LONGEST - 1}}}")


def run_in_names(run_id: str) -> str:
    """The run's id as the contract's `MutationName` takes it: as it is, or made fit and told apart by a digest."""
    if _FIT.fullmatch(run_id):
        return run_id
    digest = hashlib.blake2b(run_id.encode(), digest_size=DIGEST // 2).hexdigest()
    fit = re.sub(r"[^A-Za-z0-9_-]+", "-", run_id).strip("-_")[: LONGEST - DIGEST - 1]
    return f"{fit}-{digest}".lstrip("-")
