"""Environments of programs on this machine, built once for each recipe."""
