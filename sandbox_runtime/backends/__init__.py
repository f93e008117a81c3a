"""The backends; each is imported only if it is chosen."""
