"""The client against the real server, directly and through a proxy that loses answers."""

import signal
import threading
import time
from pathlib import Path

import pytest

from gepa_client import RemoteAdapter, Row

SERVED = Path(__file__).parent / "served"
PROGRAM = str(SERVED / "counting_program.py")


@pytest.fixture
def counted(tmp_path):
    """The rows that really ran, each time they did."""
    path = tmp_path / "runs"
    path.touch()
    return lambda: path.read_text(encoding="utf-8").split(), str(path)


def rows(count, **more):
    return [Row(str(number), {"n": number, **more}) for number in range(count)]


def test_answers_lost_on_the_way_are_collected_and_nothing_runs_twice(gepa_server, proxy_to, counted):
    ran, path = counted
    with gepa_server(SERVED, "--program", PROGRAM, COUNT_FILE=path) as url:
        proxy = proxy_to(url)
        with RemoteAdapter(proxy.url, first_backoff_s=0.01) as adapter:
            proxy.only = "evaluate"
            proxy.faults += ["drop_after", "502", "pass", "drop_before", "drop_after", "502"] * 5
            batch = adapter.evaluate(rows(30), adapter.seed_candidate, capture_traces=True)
            dataset = adapter.make_reflective_dataset(adapter.seed_candidate, batch, ["text"])
    assert batch.scores == [number / 10 for number in range(30)]
    assert sorted(ran(), key=int) == [str(number) for number in range(30)]
    assert [record["Inputs"]["n"] for record in dataset["text"]] == list(range(30))
    assert not proxy.faults


def test_ctrl_c_stops_what_runs_on_the_server(gepa_server, counted, eventually):
    ran, path = counted
    flags = ["--program", PROGRAM, "--workers", "1", "--drain-s", "1"]
    with gepa_server(SERVED, *flags, COUNT_FILE=path) as url, RemoteAdapter(url) as adapter:

        def press():
            eventually(lambda: bool(ran()))  # pressed even if in vain: the test must not wait for all of the 30 s
            signal.pthread_kill(main.ident, signal.SIGINT)

        main = threading.current_thread()
        thread = threading.Thread(target=press, daemon=True)
        thread.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            adapter.evaluate(rows(5, sleep_s=30), adapter.seed_candidate)
        thread.join(5)
        assert adapter.evaluate(rows(1), adapter.seed_candidate).scores == [0.0]  # its only worker is free again
        assert time.monotonic() - started < 15
    assert len(ran()) == 2
