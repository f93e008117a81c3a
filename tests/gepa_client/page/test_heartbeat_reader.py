"""The page names the rows of examples in flight by the split that they are of."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from gepa_client.journal.store import open_store
from gepa_client.page.event_log import EventLog
from gepa_client.page.heartbeat_reader import HeartbeatReader
from gepa_client.page.initial_rows import InitialRows
from gepa_client.page.pool_reader import PoolReader
from tests.gepa_client.stored_run import RUN_ID, Made, put


def test_examples_in_flight_are_test_rows_while_those_are_scored_and_name_their_endpoint(tmp_path: Path) -> None:
    path = str(tmp_path / "runs.db")
    put(path, Made(status="running"))
    waiting = {"digest": "d", "about": "evaluate example '1' with candidate 0d3b6966", "seconds": 20, "limit_s": None}
    with closing(open_store(path)) as store:
        log = EventLog()
        reader = HeartbeatReader(store, RUN_ID, PoolReader(store, RUN_ID, log, InitialRows(store, RUN_ID, log)))
        run = store.run(RUN_ID)
        rows: list[str] = []
        for phase in ("optimizing", "testing"):
            now = {
                "phase": phase,
                "longest": [{**waiting, "endpoint": "http://127.0.0.1:9"}],
                "timeouts": 3,
                "usual_s": 2.0,
            }
            found = reader.event(replace(run, counters={"now": now}), driven=True)
            rows.append(found.longest[0].row)
            assert (found.longest[0].endpoint, found.timeouts, found.usual_s) == ("http://127.0.0.1:9", 3, 2.0)
    assert not rows[0].startswith("test")
    assert rows[1] == "test 1"
