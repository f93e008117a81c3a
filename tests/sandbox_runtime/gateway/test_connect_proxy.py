"""The proxy of a sandbox: what its egress allows is reached, by an address that was looked at, and nothing else is."""

import asyncio
import base64
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from evolverpc_common.network_addresses import is_public, parse_address
from sandbox_runtime.api.spec import Allow, Closed, Egress, Open
from sandbox_runtime.gateway import connect_proxy
from sandbox_runtime.gateway.gateway_session import TUNNELS
from tests.sandbox_runtime.gateway.conftest import Opens, Recorded, Sandbox, sandbox

LOOPBACK = ("127.0.0.1/32",)


@dataclass
class Names:
    """A resolver: each name's answers in turn, the last for ever."""

    answers: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:  # noqa: ARG002  as the gateway asks
        self.asked.append(host)
        known = self.answers.get(host)
        if known is None:
            raise socket.gaierror(socket.EAI_NONAME, "internal detail")
        return known.pop(0) if len(known) > 1 else known[0]


@dataclass
class Echo:
    """A host that echoes what it receives, and writes `over` at the end of the input."""

    port: int
    received: list[bytes] = field(default_factory=list)


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65536):
                made.received.append(chunk)
                writer.write(chunk)
                await writer.drain()
            writer.write(b"over")
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made = Echo(server.sockets[0].getsockname()[1])
    async with server:
        yield made


@pytest.fixture
async def one(opened: Opens) -> AsyncIterator[Sandbox]:
    """A sandbox that reaches loopback."""
    async with opened() as gateway:
        yield await sandbox(gateway, Allow((), LOOPBACK))


@dataclass
class Answered:
    """The reply of a proxy, and the streams behind it."""

    status: int
    head: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def rest(self) -> bytes:
        """All that still comes, and then the end of the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(), 30)
        finally:
            self.writer.close()


async def connect(one: Sandbox, target: str, token: str | None = None, line: str = "CONNECT {} HTTP/1.1") -> Answered:
    """Ask the sandbox's proxy."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(one.tunnel.rpartition(":")[2]))
    proof = base64.b64encode(f"sandbox:{one.token if token is None else token}".encode()).decode()
    writer.write(f"{line.format(target)}\r\nProxy-Authorization: Basic {proof}\r\nX-Mine: 1\r\n\r\n".encode())
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).decode()
    return Answered(int(head.split()[1]), head, reader, writer)


async def status(one: Sandbox, target: str) -> int:
    answered = await connect(one, target)
    answered.writer.close()
    return answered.status


async def test_each_connection_to_an_allowed_host_is_reported_when_it_ends(
    opened: Opens, echo: Echo, recorded: Recorded
) -> None:
    names = Names({"good.example": [["127.0.0.1"]]})
    async with opened(resolve=names) as gateway:
        one = await sandbox(gateway, Allow(("*.example",), LOOPBACK))
        answered = await connect(one, f"good.example:{echo.port}")
        answered.writer.write(b"x" * 1000)
        answered.writer.write_eof()
        assert await answered.rest() == b"x" * 1000 + b"over"
        assert await status(one, f"missing.example:{echo.port}") == 502
        assert await status(one, f"elsewhere:{echo.port}") == 403
        await one.session.close()
    found = [
        (each.method, each.host, each.port, each.sent, each.received, each.reached) for each in recorded.connections
    ]
    assert found == [
        ("CONNECT", "good.example", echo.port, 1000, 1004, True),
        ("CONNECT", "missing.example", echo.port, 0, 0, False),
    ]
    assert {each.sandbox for each in recorded.connections} == {"sandbox-1"}
    assert all(0 <= each.seconds < 60 for each in recorded.connections)
    assert len(recorded.refusals) == 1


async def test_a_name_is_resolved_once_and_the_first_address_that_answers_is_used(opened: Opens, echo: Echo) -> None:
    names = Names({"moving.example": [["127.0.0.3", "127.0.0.1"], ["127.0.0.2"]]})
    async with opened(resolve=names) as gateway:
        one = await sandbox(gateway, Allow(("moving.example",), ("127.0.0.3/32", *LOOPBACK)))
        assert await status(one, f"moving.example:{echo.port}") == 200
        assert names.asked == ["moving.example"]
        assert await status(one, f"moving.example:{echo.port}") == 502


CASES: list[tuple[Egress, str, int]] = [
    (Closed(), "good.example", 403),
    (Allow(("good.example",), LOOPBACK), "good.example", 200),
    (Allow(("GOOD.example",), LOOPBACK), "Good.Example.", 200),
    (Allow(("good.example",), LOOPBACK), "[::ffff:127.0.0.1]", 200),
    (Allow(("good.example",)), "good.example", 502),
    (Allow(("good.example",), LOOPBACK), "bad.example", 403),
    (Allow(("good.example",), LOOPBACK), "sub.good.example", 403),
    (Allow(("*.example",), LOOPBACK), "good.example", 200),
    (Allow(("*.example",), LOOPBACK), "evilexample", 403),
    (Allow(("*.example",), LOOPBACK), "mixed.example", 502),
    (Allow(("*.example",), LOOPBACK), "missing.example", 502),
    (Allow(("*.example",), LOOPBACK), "127.0.0.2", 403),
    (Allow((), LOOPBACK), "2130706433", 403),
    (Open(), "good.example", 502),
    (Open(), "127.0.0.1", 502),
    (Open(), "[::1]", 502),
    (Open(), "169.254.169.254", 502),
    (Open(), "0.0.0.0", 502),  # noqa: S104  nothing is bound to it
    (Open(), "2130706433", 502),
    (Open(), "good.example/x", 403),
]


@pytest.mark.parametrize(("egress", "host", "expected"), CASES)
async def test_the_egress_decides_which_hosts_are_reachable(
    opened: Opens, echo: Echo, egress: Egress, host: str, expected: int
) -> None:
    names = Names(
        {"good.example": [["127.0.0.1"]], "mixed.example": [["127.0.0.1", "127.0.0.2"]], "2130706433": [["127.0.0.1"]]}
    )
    async with opened(resolve=names) as gateway:
        one = await sandbox(gateway, egress)
        assert await status(one, f"{host}:{echo.port}") == expected
        if expected == 403:
            assert names.asked == []


async def test_a_refusal_names_the_setting_that_would_open_the_host(opened: Opens, recorded: Recorded) -> None:
    async with opened(resolve=Names({"inside.example": [["10.0.0.1"]]})) as gateway:
        one = await sandbox(gateway, Allow(("inside.example",)), opened_by="build_hosts")
        for host in ("other.example", "inside.example"):
            await status(one, f"{host}:443")
    assert [refusal.reason for refusal in recorded.refusals] == [
        "not among the hosts that it may reach (build_hosts)",
        "10.0.0.1 is not a public address (build_hosts)",
    ]


PRIVATE = (
    *("0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.1.1"),  # noqa: S104
    *("168.63.129.16", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "ff0e::1", "2001:db8::1", "100::1"),
    *("::ffff:10.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2002:808:808::", "2001::1"),
    *("64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::808:808", "5f00::1"),
)
PUBLIC = ("8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700:4700::1111")


def test_addresses_that_are_public_and_those_that_are_not() -> None:
    for addresses, expected in ((PRIVATE, False), (PUBLIC, True)):
        for address in addresses:
            found = parse_address(address)
            assert found is not None and is_public(found) is expected, address


async def test_a_refusal_is_the_same_whether_the_host_exists_or_not(opened: Opens) -> None:
    names = Names({"inside.example": [["10.0.0.1"]]})
    async with opened(resolve=names) as gateway:
        one, free = await sandbox(gateway, Allow(("a.example",))), await sandbox(gateway, Open())
        for who in (one, free):
            answers = [await connect(who, f"{host}:443") for host in ("inside.example", "missing.example")]
            bodies = {answered.head.encode() + await answered.rest() for answered in answers}
            assert len(bodies) == 1 and b"detail" not in bodies.pop()


async def test_plain_http_is_forwarded_to_one_host_without_the_proxy_headers(one: Sandbox, echo: Echo) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(one.tunnel.rpartition(":")[2]))
    proof = base64.b64encode(f"any:{one.token}".encode()).decode()
    head = f"GET http://127.0.0.1:{echo.port}/a?b HTTP/1.1\r\nHost: evil\r\nProxy-Authorization: basic {proof}\r\n"
    writer.write(f"{head}Connection: keep-alive\r\nX-Mine: 1\r\nContent-Length: 4\r\n\r\nbody".encode())
    writer.write_eof()
    received = (await asyncio.wait_for(reader.read(), 30)).decode()
    writer.close()
    lines = ["GET /a?b HTTP/1.1", f"Host: 127.0.0.1:{echo.port}", "X-Mine: 1", "Content-Length: 4", "Connection: close"]
    assert received == "\r\n".join([*lines, "", "bodyover"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("CONNECT {} HTTP/1.1", 200),
        ("GET / HTTP/1.1", 400),
        ("GET https://{}/ HTTP/1.1", 400),
        ("GET http://user@{}/ HTTP/1.1", 400),
        ("CONNECT {}\tx HTTP/1.1", 400),
        ("CONNECT {}0000 HTTP/1.1", 400),
        ("CONNECT {} HTTP/2.0", 400),
        ("CONNECT {} HTTP/1.1\r\n folded: 1", 400),
        ("CONNECT {} HTTP/1.1\r\nbad header", 400),
        ("CONNECT {} HTTP/1.1\r\nX: " + "x" * 20_000, 431),
    ],
)
async def test_requests_are_parsed_or_refused(one: Sandbox, echo: Echo, line: str, expected: int) -> None:
    answered = await connect(one, f"127.0.0.1:{echo.port}", line=line)
    answered.writer.close()
    assert answered.status == expected


async def test_a_token_is_valid_only_at_its_own_sandboxs_proxy(opened: Opens, echo: Echo) -> None:
    async with opened() as gateway:
        one = await sandbox(gateway, Allow((), LOOPBACK))
        two = await sandbox(gateway, Allow((), LOOPBACK), name="sandbox-2")
        target = f"127.0.0.1:{echo.port}"
        for token in ("", "wrong", two.token):
            answered = await connect(one, target, token)
            answered.writer.close()
            assert answered.status == 407 and 'Proxy-Authenticate: Basic realm="gateway"' in answered.head
        proof = base64.b64encode(f"sandbox:{one.token}".encode()).decode()
        twice = await connect(one, target, line=f"CONNECT {{}} HTTP/1.1\r\nProxy-Authorization: Basic {proof}")
        twice.writer.close()
        assert twice.status == 407


async def test_closing_the_session_closes_both_ends_of_a_running_tunnel(one: Sandbox, echo: Echo) -> None:
    answered = await connect(one, f"127.0.0.1:{echo.port}")
    answered.writer.write(b"ping")
    assert await asyncio.wait_for(answered.reader.readexactly(4), 30) == b"ping"
    await one.session.close()
    await one.session.close()
    with contextlib.suppress(ConnectionError):
        assert await answered.rest() == b""
    with pytest.raises(ConnectionError):
        await connect(one, "127.0.0.1:1")


async def test_a_tunnel_in_use_stays_and_one_that_is_idle_ends(
    opened: Opens, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect_proxy, "IDLE_S", 0.5)
    async with opened() as gateway:
        one = await sandbox(gateway, Allow((), LOOPBACK))
        used = await connect(one, f"127.0.0.1:{echo.port}")
        for _ in range(8):
            used.writer.write(b"x")
            assert await used.reader.read(1) == b"x"
            await asyncio.sleep(0.1)
        assert await used.rest() == b""


async def test_litellm_reads_its_prices_where_it_is_unless_all_hosts_are_open(opened: Opens) -> None:
    async with opened() as gateway:
        found = [(await sandbox(gateway, egress)).session.env("http://a", "http://b") for egress in (Closed(), Open())]
    assert ["LITELLM_LOCAL_MODEL_COST_MAP" in variables for variables in found] == [True, False]


async def test_a_sandbox_has_so_many_connections_and_further_ones_wait(one: Sandbox, echo: Echo) -> None:
    port = int(one.tunnel.rpartition(":")[2])
    flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(TUNNELS)]
    late = asyncio.create_task(status(one, f"127.0.0.1:{echo.port}"))
    await asyncio.wait([late], timeout=0.1)
    assert not late.done()
    flood[0][1].close()
    assert await asyncio.wait_for(late, 30) == 200
    for _, writer in flood:
        writer.close()
