"""The versions of the contract this code speaks, newest last."""

KNOWN_VERSIONS: tuple[str, ...] = ("1",)
CURRENT_VERSION: str = KNOWN_VERSIONS[-1]
