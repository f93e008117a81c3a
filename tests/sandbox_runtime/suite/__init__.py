"""What every runtime does alike, a class of tests to a file; test_suite.py runs them on each backend."""

from tests.sandbox_runtime.suite.ending import Ending
from tests.sandbox_runtime.suite.executing import Executing
from tests.sandbox_runtime.suite.finding import Finding
from tests.sandbox_runtime.suite.keeping import Keeping
from tests.sandbox_runtime.suite.starting import Starting

__all__ = ["Starting", "Executing", "Ending", "Keeping", "Finding"]
