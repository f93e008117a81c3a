"""The report of a run in words: `report.md`, from its events and the explanation of its best candidate."""

from pathlib import Path

from evolverpc_common.files import replace_file
from gepa_client.analysis.explanation import Explanation
from gepa_client.report.markdown import markdown
from gepa_client.report.record import RunRecord
from gepa_client.run.output_folder import REPORT

__all__ = ["RunRecord", "markdown", "write"]


def write(output: Path, record: RunRecord, explained: Explanation | None) -> str:
    """Write the report; return its name. `explained`: None if it is not known."""
    replace_file(output / REPORT, markdown(record, explained))
    return REPORT
