"""Sandboxes of bubblewrap: namespaces of their own on this machine, started by an ordinary user or by root.

`runtime.BubblewrapRuntime` is all that others use; it is not imported here, as the doorman is to be small.
"""
