"""The suite of all runtimes, on each of them."""

import pytest

from tests.sandbox_runtime.backend import BACKENDS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run all of it with bubblewrap, one start with docker, how sandboxes start with others; the rest is `long`."""
    if metafunc.definition.get_closest_marker("parametrize") is None:
        rest = () if metafunc.module.__name__.endswith("test_starting") else (pytest.mark.long,)
        first = metafunc.function.__name__.startswith("test_a_sandbox_that_was_started_answers")
        marks = dict.fromkeys(BACKENDS, rest) | {"bubblewrap": (), "docker": () if first else (pytest.mark.long,)}
        kinds = [pytest.param(kind, marks=marks[kind]) for kind in BACKENDS]
        metafunc.parametrize("backend", kinds, indirect=True)
