"""The end of what was written, however much that was."""


class Tail:
    """Keeps the last `limit` bytes of what it is given."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """What was written next."""
        self._kept += data
        if len(self._kept) > 2 * self._limit:  # not at every piece: each cut moves all that is kept
            del self._kept[: -self._limit]

    def bytes(self) -> bytes:
        """The end of it."""
        return bytes(self._kept[-self._limit :])

    def text(self) -> str:
        """The same as text; what is not UTF-8 is replaced."""
        return self.bytes().decode("utf-8", "replace")
