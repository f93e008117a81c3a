"""Sandboxes at Modal. Nothing is imported here: images have no `modal`, and nobody pays for it who chose another."""
