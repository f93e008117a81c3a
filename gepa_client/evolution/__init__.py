"""Runs whose program's code evolves: change requests, mutations, their commits and what came of them."""

from typing import Literal

Evolve = Literal["code", "prompts", "both"]
"""What of a program a run changes."""
