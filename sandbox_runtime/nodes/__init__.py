"""Sandboxes on other machines: a host process on each node has a runtime there, and a run uses all of them as one."""
