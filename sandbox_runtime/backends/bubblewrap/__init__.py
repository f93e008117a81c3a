"""Sandboxes made by bubblewrap: namespaces of their own on this machine, for an ordinary user or root.

Other packages use `backend.BubblewrapBackend` only.
"""
