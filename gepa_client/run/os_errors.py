"""What a fault of the operating system means for a run: a disk that takes no more is no fault of the run's own."""

import errno

from gepa_client.errors import Interrupted
from gepa_client.transport.error_format import summary

TAKES_NO_MORE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG})
"""Of all that is an `OSError`, lost connections and time-outs included, what tells of the disk."""


def stop_for(error: OSError, what: str = "") -> Interrupted:
    """How a run ends by it: paused where making room helps, else failed; `what` failed, in words."""
    if error.errno in TAKES_NO_MORE:
        return Interrupted("paused", f"a file of the run cannot be written: {summary(error)}; make room, then resume")
    return Interrupted("failed", f"{what} failed: {summary(error)}" if what else summary(error))
