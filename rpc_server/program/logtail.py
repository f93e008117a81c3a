"""The end of what a program wrote to stdout and stderr, however much that is."""

MAX_SHOWN_BYTES = 8 * 1024
"""What a failing example's `error.log` may hold."""


class LogTail:
    """Keeps the last bytes written, and counts them all, so that a reader can ask for what came since a moment."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.total = 0
        """Bytes written so far."""

    def write(self, data: bytes) -> None:
        """Add to the end; the oldest bytes are let go."""
        self.total += len(data)
        self._kept += data[-MAX_SHOWN_BYTES:]
        if len(self._kept) > 2 * MAX_SHOWN_BYTES:
            del self._kept[:-MAX_SHOWN_BYTES]

    def since(self, mark: int = 0) -> str:
        """What was written after `total` was `mark`: its last `MAX_SHOWN_BYTES`."""
        wanted = min(self.total - mark, MAX_SHOWN_BYTES)
        return self._kept[-wanted:].decode("utf-8", "replace") if wanted > 0 else ""
