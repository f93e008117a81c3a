"""Takes a provider's key out of what it answers, also where it lies across two chunks."""

MARK = "[key]"

SHORTEST = 8
"""Characters from which a key can be told from text; what is shorter is a stand-in such as `x`, and no secret."""


class Redactor:
    """For one answer."""

    def __init__(self, key: str) -> None:
        self._key = key.encode() if len(key) >= SHORTEST else b""
        self._held = b""

    def text(self, text: str) -> str:
        """Of a whole text."""
        return text.replace(self._key.decode(), MARK) if self._key else text

    def feed(self, chunk: bytes) -> bytes:
        """What may go on: all of it but an end that may be the key's beginning."""
        if not self._key:
            return chunk
        whole = (self._held + chunk).replace(self._key, MARK.encode())
        keep = next(
            (size for size in range(min(len(self._key) - 1, len(whole)), 0, -1) if self._begins(whole, size)), 0
        )
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]

    def rest(self) -> bytes:
        """What was held back, once the answer is over."""
        held, self._held = self._held, b""
        return held

    def _begins(self, whole: bytes, size: int) -> bool:
        return whole.endswith(self._key[:size])
