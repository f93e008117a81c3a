"""The report of a run: `report.md` and `report.html`, from its events and the explanation of its best candidate."""

from pathlib import Path

from evolverpc_common.files import replace_file
from gepa_client.analysis.explanation import Explanation
from gepa_client.report.html_page import html
from gepa_client.report.markdown import markdown
from gepa_client.report.record import RunRecord
from gepa_client.run.output_folder import REPORT, REPORT_PAGE

__all__ = ["RunRecord", "html", "markdown", "write"]


def write(output: Path, record: RunRecord, explained: Explanation | None) -> list[str]:
    """Write both reports; returns their names. `explained`: None if it is not known."""
    replace_file(output / REPORT, markdown(record, explained))
    replace_file(output / REPORT_PAGE, html(record, explained))
    return [REPORT, REPORT_PAGE]
