"""Keeps on this machine what programs need installed, built once for each recipe."""

from sandbox_runtime.environments.built import Built, Run
from sandbox_runtime.environments.cache import Environments

__all__ = ["Built", "Environments", "Run"]
