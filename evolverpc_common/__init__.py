"""The lowest layer: general tools that the other packages share."""
