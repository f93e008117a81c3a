"""What the page states of a run, from its events and the explanation of its best candidate."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gepa_client.analysis.explanation import Explanation, explain
from gepa_client.journal.run_events import CallRefused, Finished
from gepa_client.journal.store import open_store
from gepa_client.run.output_folder import HostTotals
from tests.gepa_client.example_records import example_record, started
from tests.gepa_client.exported_page import shown_text
from tests.gepa_client.stored_run import Made


@pytest.fixture
def explained(tmp_path: Path) -> Explanation:
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        found = explain(store, Made().into(store))
    assert found is not None
    return replace(found, proposed=9, kept=2)


def test_the_report_begins_with_the_scores_the_end_and_how_certain_the_difference_is(explained: Explanation) -> None:
    record = example_record(Finished(status="completed", reason="max_metric_calls of 120 is reached", metric_calls=120))
    page = shown_text(record, explained)
    assert page.startswith(
        "summary\nOn 12 validation rows the seed scores 0.25 and the best candidate (2) scores 0.75.\n"
    )
    assert "It ended after 120 of 3,000 metric calls and 3.0 s (completed: max_metric_calls of 120 is" in page
    assert "The program made 9 proposals, of which 2 were kept." in page
    assert "4 rows are better, 0 are worse and 0 the same with the best candidate: that may be chance" in page


def test_hosts_that_sandboxes_connected_to_are_a_table_with_refused_ones() -> None:
    record = example_record()
    assert "Hosts that" not in shown_text(record, None)
    record.hosts = {"pypi.org:443": HostTotals(3, 1, 1200, 34000)}
    for what, times in (("pypi.org:443", 1), ("10.0.0.1:80", 7), ("a model", 2), ("no-model/POST /v1", 4)):
        record.apply(CallRefused(seconds=1.0, sandbox="s", what=what, reason="no", times=times))
    page = shown_text(record, None)
    assert "\npypi.org:443\n3\n1\n1\n1,200\n34,000\n10.0.0.1:80\n0\n0\n7\n0\n0" in page


def test_training_rows_that_select_the_candidates_are_not_called_validation_rows(explained: Explanation) -> None:
    record = example_record(
        started(splits={"train": 12, "val": 12}, training_only=True), Finished(status="completed", metric_calls=120)
    )
    assert explained.overall is not None
    text = shown_text(record, replace(explained, overall=replace(explained.overall, title=""), steps=()))
    assert "On 12 training rows the seed scores 0.25 and the best candidate (2) scores 0.75." in text
    assert "The training rows selected the candidate, and it was made from their results, so new rows may" in text
    assert "12 train (no validation rows: they select the candidates too)" in text
    assert "validation" not in text.replace("no validation rows", "")
