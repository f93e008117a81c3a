"""The report of a run: `report.md` and `report.html`, both from its events alone."""

from pathlib import Path

from evolverpc_common.files import replace_file
from gepa_client.report.html_page import html
from gepa_client.report.markdown import markdown
from gepa_client.report.record import RunRecord
from gepa_client.run.output_folder import REPORT, REPORT_PAGE

__all__ = ["RunRecord", "html", "markdown", "write"]


def write(output: Path, record: RunRecord) -> list[str]:
    """Write both reports; returns their names."""
    replace_file(output / REPORT, markdown(record))
    replace_file(output / REPORT_PAGE, html(record))
    return [REPORT, REPORT_PAGE]
