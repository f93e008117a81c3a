"""Who may ask the server of the page, what it answers, and what it does with harmful texts."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from gepa_client.journal.entries import SEARCH, STOP, Attempt, CandidateRecord
from gepa_client.journal.requests import RequestKey, digest_of, evaluate_key
from gepa_client.journal.store import open_store
from gepa_client.page import page_server
from gepa_client.page.page_server import HEADERS, PageServer
from tests.gepa_client.page.browsing import TIMEOUT_S, Browser, served
from tests.gepa_client.stored_run import RUN_ID, Made, decisions, put

HARMFUL = "</script><img src=x onerror=alert(1)>\x00\x1b[31m\u202e{}"
OUTPUT = "x" * 5_000_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run with harmful texts, a text of 1 MB and an output of 5 MB."""
    path = str(tmp_path_factory.mktemp("page") / "runs.db")
    put(path, Made())
    opened = open_store(path)
    texts = {"rules": HARMFUL, "long": "word " * 200_000}
    made = Made()
    last = opened.candidates(RUN_ID)[-1]
    rows = [made.wire(position) for position in range(4)]
    number = last.number
    entries: list[Any] = []
    for row in rows:
        key = evaluate_key(digest_of(texts), digest_of(row), row["id"], trace=False)
        result = {"status": "ok", "score": 0.5, "output": OUTPUT if row["id"] == "0" else "\u202eout", "seconds": 0.1}
        if row["id"] == "1":
            result["trajectory_ref"] = "kept/1"
        if row["id"] == "2":
            inner = {"name": "search", "inputs": {"words": 2}, "outputs": 0}
            result["trajectory"] = {"steps": [{"component": "rules", "inputs": {}, "outputs": "a", "steps": [inner]}]}
        usage = {"cost_usd": 0.01, "input_tokens": 7, "output_tokens": 3}
        begun = Attempt(SEARCH, number, 1, "evaluate", "http://127.0.0.1:9", None)
        ended = replace(begun, outcome="ok", seconds=0.25, usage=usage)
        entries += [key.answered(SEARCH, number, orjson.dumps(result)), begun, ended]
        number += 1
    kept = CandidateRecord(5, texts, [4], 5, number, 0.5, {str(3 + at): 0.5 for at in range(4)}, 40)
    opened.write(RUN_ID, "", [*entries, decisions([*opened.candidates(RUN_ID), kept])[-1]])
    opened.update(RUN_ID, {"name": "<b>name</b>", "reason": f"\ud800{HARMFUL}"})
    opened.close()
    return path


@pytest.fixture
def server(store: str) -> Iterator[PageServer]:
    with served(store) as made:
        yield made


async def test_only_a_page_with_the_token_of_this_server_is_answered(server: PageServer) -> None:
    async with Browser(server.address(None)) as browser:
        assert (await browser.get("/api/runs"))[0] == 401
        for token in ("", "x" * 32, "\u00e9", None, 7):
            async with browser.http.post(
                f"{browser.base}/session", json={"token": token}, headers=browser.origin
            ) as refused:
                assert refused.status == 403
        assert (await browser.get("/api/runs"))[0] == 401
        async with browser.http.post(f"{browser.base}/session", json={"token": browser.token}) as refused:
            assert refused.status == 403  # no origin
        await browser.open_session()
        assert (await browser.get("/api/runs"))[1]["runs"][0]["figures"]["seed"] == "0"
        [cookie] = browser.http.cookie_jar
        assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
        assert browser.token not in cookie.value
        for headers in (
            {"Host": "evil.example"},
            {"Host": browser.base.removeprefix("http://").replace("127.0.0.1", "localhost")},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            assert (await browser.get("/api/runs", **headers))[0] in (403, 421), headers
        async with browser.http.get(f"{browser.base}/") as page:
            policy = page.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert page.headers["X-Content-Type-Options"] == "nosniff"
            assert page.headers["Referrer-Policy"] == "no-referrer"
            assert page.headers["Cache-Control"] == "no-store"
        for path in ("/assets/../page_server.py", "/assets/%2e%2e%2fpage_server.py", "/assets/index.html", "/x"):
            async with browser.http.get(aiohttp.client.URL(f"{browser.base}{path}", encoded=True)) as other:
                assert other.status == 404, path


async def test_texts_of_any_kind_come_as_they_are_and_large_ones_when_they_are_asked_for(server: PageServer) -> None:
    async with Browser(server.address(None)) as browser:
        await browser.open_session()
        await browser.follow("last")
        kept = next(each for each in browser.state.of("candidate") if each["index"] == 5)
        assert kept["texts"]["rules"]["text"] == HARMFUL
        assert kept["texts"]["long"]["omitted"] == 1_000_000 - 2_000
        assert max(len(orjson.dumps(each)) for each in browser.state.facts.values()) < 50_000
        run = browser.state.one("run")
        assert run is not None and "</script>" in run["reason"]
        _, cell = await browser.get(f"/api/runs/{RUN_ID}/cell?candidate=5&row=0")
        assert cell["result"]["output"]["omitted"] == 5_000_000 - 2_000
        assert (cell["input_tokens"], cell["output_tokens"], cell["cost_usd"]) == (7, 3, 0.01)
        whys = [(await browser.get(f"/api/runs/{RUN_ID}/cell?candidate=5&row={at}"))[1]["no_steps"] for at in (0, 1)]
        assert "captured no trace" in whys[0] and "stayed at its server" in whys[1]
        [step] = (await browser.get(f"/api/runs/{RUN_ID}/cell?candidate=5&row=2"))[1]["steps"]
        assert (step["name"], [each["output"]["text"] for each in (step, *step["steps"])]) == ("rules", ["a", "0"])
        wrong = [(await browser.get(f"/api/runs/{RUN_ID}/cell?candidate=5&row={at}"))[0] for at in (-1, 99)]
        assert wrong == [400, 404]
        text = ""
        while len(text) < 5_000_000:
            _, part = await browser.get(f"/api/runs/{RUN_ID}/cell?candidate=5&row=0&part=output&from={len(text)}")
            text += part["text"]
            assert part["omitted"] == 5_000_000 - len(text)
        assert text == OUTPUT
        _, shown = await browser.get(f"/api/runs/{RUN_ID}/text?candidate=5&component=long&from=999990")
        assert shown == {"text": "word word ", "omitted": 0}
        assert (await browser.get(f"/api/runs/{RUN_ID}/cell?candidate=0&row=0"))[1]["cost_usd"] == 0.01


async def test_a_body_that_is_no_small_json_is_refused_with_the_headers_of_every_answer(server: PageServer) -> None:
    async with Browser(server.address(None)) as browser:
        await browser.open_session()
        steer = f"/api/runs/{RUN_ID}/steer"
        sent: list[tuple[str, bytes, str, int]] = [
            ("/session", b"[" * 1_000, "application/json", 400),
            ("/session", b"[" * 200_000, "application/json", 413),
            ("/session", b"{}", "application/json; charset=nope", 403),
            (steer, b"[" * 200_000, "application/json", 400),
            (steer, b"\xff", "application/json; charset=nope", 400),
            ("/nothing", b"", "text/plain", 404),
        ]
        for path, body, kind, status in sent:
            headers = browser.writes | {"Content-Type": kind}
            async with browser.http.post(f"{browser.base}{path}", data=body, headers=headers) as answer:
                assert (answer.status, list(await answer.json())) == (status, ["error"]), path
                assert HEADERS.items() <= dict(answer.headers).items()
        reader, writer = await asyncio.open_connection(*browser.base.removeprefix("http://").split(":"))
        writer.write(b"GET / HTTP/9\r\n\r\n")
        answered = (await asyncio.wait_for(reader.read(), TIMEOUT_S)).decode()
        writer.close()
        assert "400 Bad Request" in answered.splitlines()[0]
        assert all(f"{name}: {value}" in answered for name, value in HEADERS.items())


async def test_connections_that_send_no_whole_request_end_in_time_and_idle_ones_make_room_for_others(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (12, 12))
    monkeypatch.setattr(page_server, "REQUEST_S", 1.0)
    with served(store) as server:
        async with Browser(server.address(None)) as browser:
            host = browser.base.removeprefix("http://")
            head = f"POST /session HTTP/1.1\r\nHost: {host}\r\nOrigin: {browser.base}\r\nContent-Length: 9\r\n"

            async def begin(sent: str) -> asyncio.StreamReader:
                reader, writer = await asyncio.open_connection(*host.split(":"))
                closing.callback(writer.close)
                writer.write(sent.encode())
                return reader

            async def answer(reader: asyncio.StreamReader) -> bytes:
                try:
                    return (await asyncio.wait_for(reader.read(), TIMEOUT_S)).split(b"\r\n")[0]
                except ConnectionResetError:  # it made room for another one
                    return b""

            with ExitStack() as closing:
                opened = [await begin(head) for _ in range(8)]
                assert [await answer(each) for each in opened[:2]] == [b"", b""]
                assert not opened[-1].at_eof()
                assert await answer(await begin(f"{head}\r\n{{")) == b"HTTP/1.1 408 Request Timeout"
                assert {await answer(each) for each in opened[2:]} == {b""}
            await browser.open_session()


async def test_a_result_that_is_written_after_later_ones_is_shown(tmp_path: Path) -> None:
    made, path = Made(absent=frozenset({(4, 2), (4, 3)})), str(tmp_path / "runs.db")
    put(path, made, Made(run_id="other", absent=frozenset({(1, 0)})))
    texts = {"rules": made.texts[4]}
    with closing(open_store(path)) as store, served(path) as server:
        end = store.candidates(RUN_ID)[-1].number
        async with Browser(server.address(None)) as browser:
            await browser.open_session()
            for row, number in ((3, end + 1), (2, end)):
                key = evaluate_key(digest_of(texts), digest_of(made.wire(row)), str(row), trace=False)
                answer = orjson.dumps(made.result(4, row))
                store.write(RUN_ID, "", [key.answered(SEARCH, number, answer)])
                _, cell = await browser.get(f"/api/runs/{RUN_ID}/cell?candidate=4&row={row}")
                assert cell["number"] == number
            assert (await browser.get("/api/runs/other/cell?candidate=4&row=2"))[1]["number"] == end - 1


async def test_late_results_of_a_proposal_come_in_the_stream(tmp_path: Path) -> None:
    made, path, texts = Made(), str(tmp_path / "runs.db"), {"rules": "a proposal"}
    put(path, made)
    with closing(open_store(path)) as store, served(path) as server:
        end = store.candidates(RUN_ID)[-1].number
        store.write(RUN_ID, "", [RequestKey(STOP, "", "paused").answered(SEARCH, end + 1, b"{}")])
        async with Browser(server.address(None)) as browser, asyncio.timeout(TIMEOUT_S):
            await browser.open_session()
            for row, number in ((3, end + 2), (2, end), (1, end + 1)):
                key = evaluate_key(digest_of(texts), digest_of(made.wire(row)), str(row), trace=False)
                store.write(RUN_ID, "", [key.answered(SEARCH, number, orjson.dumps(made.result(4, row)))])
                while not any(digest_of(texts).startswith(own) and at == row for own, at in browser.state.results):
                    await browser.follow(RUN_ID, events=1)
                store.drop(RUN_ID, SEARCH, STOP)  # as a resumed run does
