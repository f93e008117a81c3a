"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    try:
        return version("evolverpc")
    except PackageNotFoundError:
        return "0+checkout"  # run from a folder that was never installed


VERSION = _installed()
