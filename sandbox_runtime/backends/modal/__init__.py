"""Sandboxes at Modal. Nothing is imported here: images lack `modal`, and other backends do without it."""
