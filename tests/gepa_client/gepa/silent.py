"""A logger of GEPA that writes nothing."""


class Silent:
    """Takes the place of a logger."""

    def log(self, message: str) -> None:
        """Write nothing."""
