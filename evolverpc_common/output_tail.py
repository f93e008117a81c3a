"""The end of a long output."""


class OutputTail:
    """Keeps the last `limit` bytes that are added."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self._kept += data
        if len(self._kept) > 2 * self.limit:  # not at every piece: each cut moves all that is kept
            del self._kept[: -self.limit]

    def bytes(self) -> bytes:
        """Return the last bytes."""
        return bytes(self._kept[-self.limit :])

    def text(self) -> str:
        """Return them as text, with replacements for what is not UTF-8."""
        return self.bytes().decode("utf-8", "replace")
