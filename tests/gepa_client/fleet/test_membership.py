import pytest

from gepa_client.errors import ConnectionLost, Refused
from gepa_client.fleet import Address, Fleet, endpoint, read_endpoints_file
from tests.gepa_client.fleet.conftest import begin, results, url_of
from tests.gepa_client.scripted_server import TOKEN
from tests.support.waiting import eventually

UNUSED = "http://127.0.0.1:9"  # the port of `discard`, where nothing listens


# --- at the start ----------------------------------------------------------------------------------------------------


async def test_the_first_given_that_answers_leads(cluster, opened, watch):
    first, second = cluster.start(), cluster.start()
    first.capabilities.remove("finalize")
    async with opened(Address(UNUSED), first, second) as fleet:
        assert fleet.discovery.server.instance_id == first.instance_id
        assert "finalize" not in fleet.discovery.capabilities
        assert [client.instance_id for client in fleet.clients] == [first.instance_id, second.instance_id, None]
        assert [event.url for event in watch.of("joined")] == [url_of(first), url_of(second)]
        assert [event.url for event in watch.of("warning")] == [UNUSED]
        assert "connection refused" in watch.of("warning")[0].detail


async def test_one_that_did_not_answer_at_the_start_joins_later(cluster, opened, watch):
    leader, late = cluster.start(), cluster.start(3)
    cluster.kill(late)
    async with opened(leader, late) as fleet:
        assert [endpoint.slots for endpoint in fleet.endpoints if endpoint.up] == [8]
        cluster.restart(late)
        await eventually(lambda: len(watch.of("joined")) == 2)
        assert [endpoint.slots for endpoint in fleet.endpoints if endpoint.up] == [8, 3]


async def test_a_start_that_no_endpoint_answers_is_an_error(cluster, opened, tmp_path):
    with pytest.raises(ConnectionLost, match="cannot connect"):
        async with opened(Address(UNUSED)):
            pass
    with pytest.raises(ConnectionLost, match="none of the 2 endpoints answers"):
        async with opened(Address(UNUSED), Address("http://127.0.0.1:19")):
            pass
    with pytest.raises(Refused, match="no endpoint"):
        async with opened():
            pass
    gone = [Address(cluster.start().url, token_file=tmp_path / "gone") for _ in range(2)]
    with pytest.raises(Refused, match="gone: no such file"):
        async with opened(gone[0]):
            pass
    with pytest.raises(ConnectionLost, match=r"none of the 2 endpoints answers:(\n.*gone: no such file.*){2}"):
        async with opened(*gone):
            pass


async def test_endpoints_that_disagree_at_the_start_are_refused_with_all_differences(cluster):
    leader, other, third = cluster.start(), cluster.start(), cluster.start()
    leader.version, other.version = "1", "2"
    third.seed_candidate = {"system": "x"}
    fleet = Fleet(splits=lambda discovery: list(discovery.datasets))
    third.rows = {}
    with pytest.raises(Refused) as caught:
        await fleet.open([Address(server.url) for server in (leader, other, third)])
    message = str(caught.value)
    assert f"{url_of(other)}: program version: 2 instead of 1" in message
    assert f"{url_of(third)}: components: system instead of style, system; split val: it has none" in message


# --- coming back -----------------------------------------------------------------------------------------------------


async def test_a_program_that_was_changed_while_nothing_was_in_flight_gets_no_call(cluster, opened, watch, monkeypatch):
    monkeypatch.setattr(endpoint, "SILENCE_S", 0.0)
    server, other = cluster.start(), cluster.start()
    server.version = "1"
    async with opened(server, other) as fleet:
        await results(begin(fleet, "before"))
        ran = sum(server.runs.values())
        server.forget("another process")
        server.version = "2"
        await results(*(begin(fleet, f"{number}") for number in range(8)))
        assert sum(server.runs.values()) == ran
        assert watch.of("refused")[0].detail == "program version: 2 instead of 1"


async def test_an_endpoint_whose_process_was_replaced_keeps_its_slots(cluster, opened, monkeypatch):
    monkeypatch.setattr(endpoint, "SILENCE_S", 0.0)
    server = cluster.start(1)
    async with opened(server) as fleet:
        for process in ("another", "a third"):
            server.forget(process)
            await results(begin(fleet, process))


# --- the fleet file --------------------------------------------------------------------------------------------------


async def test_endpoints_join_and_leave_with_the_fleet_file(cluster, opened, watch, tmp_path):
    leader, second = cluster.start(2, held=True), cluster.start(2, held=True)
    path = tmp_path / "fleet"
    path.write_text(f"{leader.url}\n", encoding="utf-8")
    async with opened(*read_endpoints_file(path)) as fleet:
        fleet.follow(path)
        tasks = [begin(fleet, f"{number}") for number in range(6)]
        await eventually(lambda: leader._running == 2)
        path.write_text(f"{leader.url}\n{url_of(second)}  # one more\n", encoding="utf-8")
        await eventually(lambda: second._running == 2)
        path.write_text(f"{second.url}\n", encoding="utf-8")
        await eventually(lambda: len(fleet.endpoints) == 1)
        assert not watch.of("left"), "it has calls"
        cluster.let_go(leader)
        await eventually(lambda: sum(task.done() for task in tasks) == 2)  # what was in flight has ended there
        assert [event.url for event in watch.of("left")] == [url_of(leader)]
        cluster.let_go(second)
        await results(*tasks)
        assert sum(leader.runs.values()) == 2
        assert sum(second.runs.values()) == 4
        assert [endpoint.url for endpoint in fleet.endpoints] == [url_of(second)]
        path.write_text(f"{second.url}\n{UNUSED}\n", encoding="utf-8")
        await eventually(lambda: len(fleet.endpoints) == 2)
        absent = fleet.endpoints[1]
        path.write_text(f"{second.url}\n", encoding="utf-8")
        await eventually(lambda: absent.left and absent.prober.done())  # it would join once a server answers there
        (tmp_path / "token").write_text(TOKEN, encoding="utf-8")
        for joined, files in ((3, "token-file=token"), (4, "token-file=token proxy-token-file=token")):
            path.write_text(f"{second.url} {files}\n", encoding="utf-8")
            await eventually(lambda joined=joined: len(watch.of("joined")) == joined)  # another token, another endpoint


async def test_a_bad_fleet_file_changes_nothing_and_an_empty_one_makes_the_run_wait(cluster, opened, watch, tmp_path):
    leader, second = cluster.start(), cluster.start()
    path = tmp_path / "fleet"
    path.write_text(f"{leader.url}\n", encoding="utf-8")
    async with opened(*read_endpoints_file(path)) as fleet:
        fleet.follow(path)
        path.write_text("ftp://nowhere\n", encoding="utf-8")
        await eventually(lambda: watch.of("warning"))
        assert "line 1" in watch.of("warning")[0].detail
        await results(begin(fleet, "a"))
        path.unlink()
        await eventually(lambda: len(watch.of("warning")) == 2)
        assert "no such file" in watch.of("warning")[1].detail
        path.write_text("# none today\n", encoding="utf-8")
        await eventually(lambda: watch.of("left"))
        task = begin(fleet, "b")
        await eventually(lambda: watch.of("waiting"))
        assert fleet.endpoints == []
        path.write_text(f"{leader.url}\n{second.url}\n", encoding="utf-8")
        await eventually(lambda: len(watch.of("joined")) == 3)
        await results(task)
        assert len(watch.of("warning")) == 2
