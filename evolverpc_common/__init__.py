"""The lowest layer: general tools that the other packages share."""

__all__: list[str] = []
