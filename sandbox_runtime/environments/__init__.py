"""Environments of programs on this machine, built once for each recipe."""

from evolverpc_common.build_cache import BuiltEnvironment
from sandbox_runtime.environments.build_folder import RunBuildCommand
from sandbox_runtime.environments.cache import EnvironmentCache

__all__ = ["BuiltEnvironment", "EnvironmentCache", "RunBuildCommand"]
