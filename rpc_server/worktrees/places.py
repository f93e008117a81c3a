"""Paths in what programs say, as seen from their tree: where that is differs each time, and tells a reader nothing."""

import re
from pathlib import Path
from typing import Any


class Places:
    """Takes the places of a server's trees out of texts. `trees`: the folder that they are in."""

    def __init__(self, trees: Path) -> None:
        self._tree = re.compile(re.escape(str(trees)) + r"/[^/\s]+/files/?")

    def without(self, value: Any) -> Any:
        """The JSON value with every path into a tree seen from the tree's own folder."""
        if isinstance(value, str):
            return self._tree.sub("", value)
        if isinstance(value, dict):
            return {key: self.without(member) for key, member in value.items()}
        if isinstance(value, list):
            return [self.without(member) for member in value]
        return value
