"""Sandboxes that are plain processes of this machine, for development: they isolate nothing."""
