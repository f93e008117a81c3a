"""Connections, page servers and drivers are killed at random: the page has the journal's state in the end."""

import asyncio
import html
import os
import random
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import orjson
import pytest
from aiohttp import ClientConnectionError

from gepa_client.journal.entries import SEARCH, Attempt, Claim, Entry
from gepa_client.journal.run_events import NoProposal, ProposalBegun, ProposalMade
from gepa_client.journal.steer_entries import Propose
from gepa_client.journal.store import open_store
from gepa_client.page import run_reader
from gepa_client.page.event_log import EventLog
from gepa_client.page.page_events import Position
from gepa_client.steering.user_requests import request
from tests.gepa_client.conftest import Cli, Serve, Start
from tests.gepa_client.page.browsing import Browser
from tests.gepa_client.page.page_state import PageState, begun, read_run
from tests.gepa_client.page.test_time_travel import half_scored, wavering
from tests.gepa_client.stored_code import StoredCode
from tests.gepa_client.stored_run import RUN_ID, Made, put
from tests.gepa_client.word_program import Script, rows
from tests.support.rounds import rounds
from tests.support.waiting import eventually

COMPARED = ("rows", "candidate", "proposal", "steered", "budget", "failures")
TIMEOUT_S = 90.0


def compared(page: PageState) -> dict[str, Any]:
    """What two pages of a run must agree on; results of candidates are in their scores."""
    digests = {each["digest"] for each in page.of("candidate")}
    results = {place: score for place, score in page.results.items() if place[0] not in digests}
    return {kind: sorted(map(str, page.of(kind))) for kind in COMPARED} | {"results": results}


def kill_driver(store: str, run_id: str) -> None:
    with closing(open_store(store)) as opened:
        driver = opened.run(run_id).driver
    if driver is not None:
        os.kill(int(driver.split()[1]), signal.SIGKILL)


class Visit:
    """A browser that comes back to whichever server there is; `streams`: the ids it received, by epoch."""

    def __init__(self, start: Start, store: str, run_id: str) -> None:
        self._start, self._store, self._run = start, store, run_id
        self.page: PageState = PageState()
        self.last: str | None = None
        self.ids: dict[str, list[int]] = {}
        self.resets = 0

    def serve(self) -> None:
        self.server = self._start("watch", self._run, "--no-open", "--store", self._store)
        line = self.server.lines.readline()
        self.address = line.removeprefix("page: ").strip()
        assert self.address.startswith("http://127.0.0.1:"), line + self._errors()

    def kill_server(self) -> None:
        self.server.kill()

    async def look(self, events: int | None) -> None:
        """Receive so many events, or all of a run that is complete."""
        async with Browser(self.address) as browser:
            browser.state, browser.last = self.page, self.last
            before = len(self.page.ids)
            await browser.open_session()
            try:
                async with asyncio.timeout(2 * TIMEOUT_S):
                    await browser.follow(self._run, events=events)
            except TimeoutError:
                with closing(open_store(self._store)) as store:
                    run = store.run(self._run)
                shown = f"{len(browser.state.ids)} events, last {browser.last}, complete: {browser.state.complete}"
                raise AssertionError(f"no events; the run is {run.status}: {run.reason}; page: {shown}") from None
            assert browser.last is not None
            received = browser.state.ids[before if browser.state is self.page else 0 :]
            self.ids.setdefault(browser.last.split("-")[0], []).extend(received)
            self.page, self.last, self.resets = browser.state, browser.last, self.resets + browser.resets

    def _errors(self) -> str:
        return "" if self.server.poll() is None else self.server.errors.read()


@pytest.mark.timeout(400)
@pytest.mark.repeated
@pytest.mark.parametrize("seed", rounds(30))
def test_a_page_has_the_journals_state_after_connections_servers_and_drivers_were_killed(
    seed: int, serve: Serve, start: Start, tmp_path: Path
) -> None:
    chosen = random.Random(seed)
    script = Script(
        seed={"rules": "red green"},
        datasets={"train": rows(30), "val": rows(8, 100)},
        evaluate=half_scored,
        propose=wavering(seed),
        delay_s=0.4,  # so that the run has not ended when its driver is killed, however busy the machine is
    )
    store = str(tmp_path / "runs.db")
    url = serve(script)
    flags = ("--max-metric-calls", 250, "--store", store, "--lease-s", 2, "--check", "off")
    running = start("optimize", url, *flags)
    run_id = begun(store)
    visit = Visit(start, store, run_id)
    with closing(open_store(store)) as opened:
        request(opened, run_id, Propose(texts={"rules": f"red green teal {seed}"}))
    visit.serve()
    for _ in range(3):
        asyncio.run(visit.look(chosen.randint(1, 25)))
    if chosen.random() < 0.7:
        visit.kill_server()
        visit.serve()
        asyncio.run(visit.look(chosen.randint(1, 25)))
        assert visit.resets == 1
    assert running.poll() is None
    kill_driver(store, run_id)
    running.communicate(TIMEOUT_S)
    script.delay_s = 0.05
    resumed = start("resume", run_id, url, "--store", store)
    asyncio.run(visit.look(chosen.randint(1, 10)))
    resumed.communicate(TIMEOUT_S)
    assert resumed.returncode == 0
    found = compared(read_run(store, run_id))
    while compared(visit.page) != found:  # its last event may be that of the paused run, which was complete too
        asyncio.run(visit.look(None))
    visit.kill_server()
    for ids in visit.ids.values():
        assert ids == sorted(set(ids))
    proposals = visit.page.of("proposal")
    assert all(each["parents"] for each in proposals)
    assert {each["outcome"] for each in proposals} <= {"kept", "rejected", "empty"}


def test_a_page_has_each_change_of_code_and_why_one_left_nothing_to_evaluate(tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db")
    begun = ProposalBegun(
        at=5, iteration=3, proposal=5, parent=0, components=["git_branch"], rows=[], results=[], score=0
    )
    made = ProposalMade(at=7, iteration=3, proposal=5, texts={}, mutation=6)
    ended = NoProposal(at=7, iteration=3, reason="no new text", empty=True)  # as versions up to 0.1 recorded it
    StoredCode(tmp_path, events=[begun, made, ended]).into(url)
    page = read_run(url, RUN_ID)
    assert len(page.of("mutation")) == 4
    [proposal] = page.of("proposal")
    assert (proposal["outcome"], proposal["mutation"]) == ("refused", 6)
    assert "at stage paths: tests/ may not change" in proposal["why"]


@pytest.mark.parametrize(("status", "claim"), [("running", Claim("one", 1)), ("completed", Claim(None, 0))])
def test_failures_of_a_known_kind_are_counted_while_the_run_continues_and_at_each_end(
    status: str, claim: Claim, tmp_path: Path
) -> None:
    url, made = str(tmp_path / "runs.db"), Made(status=status, claim=claim, broken=frozenset({(1, 0)}))
    put(url, made)
    [ended] = [row for row in made.rows() if isinstance(row, Attempt) and row.outcome == "program_error"]
    of_number = [row for row in made.rows() if isinstance(row, Entry) and row.number == ended.number]
    [entry] = [row for row in of_number if row.part == SEARCH]
    again = [replace(row, number=99) for row in (replace(ended, outcome=None), ended, entry)]

    def has_both(page: PageState) -> bool:
        shown = page.one("failures")
        if again and shown is not None:
            with closing(open_store(url)) as store:
                store.write(RUN_ID, claim.owner or "", again)
                counters = {**store.run(RUN_ID).counters, "warnings": ["a row fails"], "now": {"in_flight": 3}}
                store.update(RUN_ID, {"status": status, "counters": counters})
            again.clear()
        facts = (page.one("summary") or {"facts": []})["facts"]
        is_summed_up = status == "running" or any(fact["text"].startswith("2 of 21 evaluations") for fact in facts)
        warned = [each["warnings"] for each in page.of("run")] == [["a row fails"]]
        return shown is not None and shown["failed"] == 2 and is_summed_up and warned

    now = read_run(url, RUN_ID, until=has_both).one("now") or {}
    assert now["in_flight"] == (3 if claim.owner else None)


def test_a_page_states_that_its_run_is_not_there_until_it_is_and_then_what_it_spent_by_the_kind_of_call(
    tmp_path: Path,
) -> None:
    url = str(tmp_path / "runs.db")
    problems: list[str] = []

    def is_there(page: PageState) -> bool:
        trouble = page.one("store") or {"gone": False, "problem": "not read yet"}
        if trouble["gone"] and not problems:
            problems.append(trouble["problem"])
            put(url, Made())
        return trouble["problem"] is None

    read_run(url, RUN_ID, until=is_there)
    assert RUN_ID in problems[0]
    spent = read_run(url, RUN_ID).one("spending")
    assert spent is not None
    assert [row[:2] for row in spent["table"]["rows"]] == [["completion", "ok"], ["evaluate", "ok"]]


def test_the_page_of_a_running_run_has_the_command_that_cancels_it(cli: Cli, tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    put(store, Made(status="running"))
    run = read_run(store, RUN_ID).one("run")
    assert run is not None
    [typed] = [each["command"] for each in run["commands"] if " cancel " in each["command"]]
    assert cli(*shlex.split(typed)[1:]).status == 0
    stated = read_run(store, RUN_ID).one("run")
    assert stated is not None and stated["status"] == "cancelled"


def test_the_browser_is_opened_without_the_secret_among_its_arguments(tmp_path: Path) -> None:
    store, opened = str(tmp_path / "runs.db"), tmp_path / "opened"
    put(store, Made())
    os.mkfifo(opened)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o700)
    watching = subprocess.Popen(
        [sys.executable, "-m", "gepa_client", "watch", "last", "--store", store],
        env={**os.environ, "BROWSER": f"{browser} %s", "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        address = watching.stdout.readline().removeprefix("page: ").strip()
        argument = subprocess.run(["cat", opened], capture_output=True, text=True, timeout=TIMEOUT_S).stdout.strip()
        file = Path(url2pathname(urlsplit(argument).path))
        assert "token" not in argument
        assert html.escape(address) in file.read_text()
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    finally:
        watching.terminate()
        watching.communicate(timeout=TIMEOUT_S)
    assert not file.parent.exists()


def test_optimize_serves_the_page_of_its_run_until_it_ends(serve: Serve, start: Start, tmp_path: Path) -> None:
    script = Script(datasets={"train": rows(30), "val": rows(8, 100)}, delay_s=0.05)
    flags = ("--max-metric-calls", 60, "--store", str(tmp_path / "runs.db"), "--check", "off", "--json", "--watch")
    running = start("optimize", serve(script), *flags)
    address = running.errors.readline().removeprefix("page: ").strip()
    page = PageState()

    async def look() -> None:
        async with Browser(address) as browser:
            browser.state = page
            await browser.open_session()
            await browser.follow("last", events=5)

    asyncio.run(look())
    assert page.of("run")[0]["status"] in ("pending", "running")
    assert running.wait(TIMEOUT_S) == 0
    with pytest.raises(ClientConnectionError):
        asyncio.run(look())


def test_a_run_whose_driver_shows_no_sign_of_life_is_lost(tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db")
    put(url, Made(status="running", claim=Claim("one", 1), config={"lease_s": 0.05}))
    read_run(url, RUN_ID, until=lambda page: (page.one("now") or {"lost": False})["lost"])


async def test_runs_that_no_page_follows_are_read_no_longer_if_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_reader, "MOST_RUNS", 2)
    runs = run_reader.WatchedRuns(str(tmp_path / "runs.db"))
    runs.get("followed").log.listen(asyncio.Event())
    for name in ("again", "idle", "again", "last"):
        runs.get(name)
    assert [each in runs for each in ("followed", "idle", "again", "last")] == [True, False, True, True]
    await eventually(lambda: "reader of idle" not in {each.name for each in threading.enumerate()})
    runs.close()


def test_an_event_that_a_later_one_replaces_is_not_sent() -> None:
    log = EventLog()
    for end in (1, 2, 2):
        log.add(Position(end=end, complete=False))
    assert log.end == 2, "one that repeats the last is none"
    assert [(number, orjson.loads(body)["end"]) for number, body in log.since(0, 1_000)[0]] == [(1, 2)]
