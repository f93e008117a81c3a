"""Handle signals during a block."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def signals_handled(
    handler: Callable[[int, Any], object] | signal.Handlers, *numbers: signal.Signals
) -> Iterator[None]:
    """Handle these signals so while the block runs, and as before it afterwards. Used in the main thread."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
