"""Started by its path under the user's interpreter: load the worker under a private name, apart from user code."""

import os
import sys

PRIVATE_NAME = "_evolverpc_worker"


def load_worker():  # type: ignore  # must be readable by interpreters too old for annotations
    """Import the folder of this file as `PRIVATE_NAME`, without leaving it on `sys.path`; returns its `main` module."""
    import importlib
    import importlib.util

    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0] or os.curdir) == folder:
        del sys.path[0]
    spec = importlib.util.spec_from_file_location(
        PRIVATE_NAME, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        sys.exit("no worker in %s" % folder)
    package = importlib.util.module_from_spec(spec)
    sys.modules[PRIVATE_NAME] = package
    spec.loader.exec_module(package)
    # A `multiprocessing` child started afresh would otherwise run this file again as its main module.
    del sys.modules["__main__"].__file__
    return importlib.import_module(PRIVATE_NAME + ".main")


if __name__ == "__main__":
    if sys.version_info < (3, 8):  # run by any interpreter of the user
        sys.exit("Python 3.8 or newer is needed; %s is %s" % (sys.executable, sys.version.split()[0]))
    load_worker().main(int(sys.argv[1]))  # type: ignore[no-untyped-call]  # see there
