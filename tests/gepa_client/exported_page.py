"""What `report.html` holds: its data, and all texts in it."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gepa_client.analysis.explanation import Explanation
from gepa_client.page.run_state import summary_of
from gepa_client.run.run_view import RunView

DATA = re.compile(rb'<script type="application/json" id="run-data">([^<]*)</script>')


def page_data(page: Path | bytes) -> dict[str, Any]:
    """Return the run's data in an exported page: events, answers and what there was no room for."""
    [found] = DATA.findall(page if isinstance(page, bytes) else page.read_bytes())
    data: dict[str, Any] = json.loads(found)
    return data


def page_text(page: Path | bytes) -> str:
    """Return every string in the data, one below the other."""
    return "\n".join(_strings(page_data(page)))


def shown_text(record: RunView, found: Explanation | None) -> str:
    """Return every string that the page's result is made from."""
    parts = [summary_of(record, found).model_dump(), None if found is None else asdict(found)]
    return "\n".join(_strings(parts))


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [text for part in parts for text in _strings(part)]
