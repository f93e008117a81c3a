"""The attempts there are, by name; each takes the example and gives what it got, None where it got nothing."""

import os

LIMIT_S = 4.0
"""How long any one of them tries."""

ATTEMPTS = {}


class Kept(Exception):
    """The attempt failed, as it should."""


def attempt(function):
    """Make it one of those that an example may name."""
    ATTEMPTS[function.__name__] = function
    return function


def walk():
    """Each folder that is to be seen, as `os.walk` gives it, but for those of the system and of installed programs."""
    installed = ("site-packages", "__pycache__", "node_modules")
    for folder, folders, names in os.walk("/"):
        yield folder, folders, names
        folders[:] = [
            name for name in folders if folder + name not in ("/proc", "/sys", "/usr") and name not in installed
        ]


def files(ending):
    """Every file of this ending in these folders."""
    for folder, _, names in walk():
        yield from (os.path.join(folder, name) for name in names if name.endswith(ending))
