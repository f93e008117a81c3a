"""The requests to Modal: exactly the spec, and nothing more."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from modal_proto import api_pb2

from sandbox_runtime import Allow, Closed, Command, Open, ResourceLimits, RuntimeUnavailable, SandboxNotReady
from sandbox_runtime.runtime import Runtime
from tests.sandbox_runtime.gateway_session import Echoing
from tests.sandbox_runtime.modal.serving_sandbox import spec
from tests.support.modal_cloud import Cloud
from tests.support.modal_cloud.box import Box

NetworkAccess = api_pb2.NetworkAccess


@asynccontextmanager
async def gateway(
    cloud: Cloud, answer: bytes = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
) -> AsyncIterator[Echoing]:
    """A gateway that sandboxes can reach; it knows no token."""

    async def answered(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answered, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        cloud.reach(port)
        url = f"http://127.0.0.1:{port}"
        yield Echoing(url)


async def box_of(cloud: Cloud, runtime: Runtime, **further: Any) -> Box:
    return cloud.box((await runtime.start(spec(cloud, **further))).id)


async def test_bounds_image_lifetime_and_tags_are_the_specs_and_no_port_is_opened(
    cloud: Cloud, runtime: Runtime
) -> None:
    container = await box_of(
        cloud,
        runtime,
        limits=ResourceLimits(cpu=1.5, memory_mb=512, lifetime_s=90.2),
        labels={"run": "r1", "name": "sandbox-3"},
    )
    asked = container.definition
    assert (asked.resources.milli_cpu, asked.resources.milli_cpu_max) == (1500, 1500)
    assert (asked.resources.memory_mb, asked.resources.memory_mb_max) == (512, 512)
    assert asked.timeout_secs == 91
    assert asked.image_id == spec(cloud).prepared.image
    assert asked.workdir == "/workspace"
    assert container.asked.app_id == cloud.control.apps["evolverpc"]
    assert {"run": "r1", "name": "sandbox-3"}.items() <= container.tags.items()
    assert container.tags["evolverpc-owner"].startswith(f"{os.getpid()}.")
    assert all(len(value) <= 63 for value in container.tags.values())
    assert list(asked.open_ports.ports) == []
    assert [asked.message.port for asked in cloud.asked if asked.method == "SandboxCreateConnectTokenV2"] == [8080]
    assert cloud.count("SandboxGetTunnels") == 0


async def test_egress_is_exact(cloud: Cloud, runtime: Runtime) -> None:
    domains, cidrs = ("pypi.org", "*.example.com"), ("192.0.2.0/24", "2001:db8::/32")
    for egress, expected in (
        (Closed(), (NetworkAccess.ALLOWLIST, (), ())),
        (Open(), (NetworkAccess.OPEN, (), ())),
        (Allow(domains, cidrs), (NetworkAccess.ALLOWLIST, cidrs, domains)),
    ):
        access = (await box_of(cloud, runtime, egress=egress)).definition.network_access
        found = (access.network_access_type, tuple(access.allowed_cidrs), tuple(access.allowed_domains))
        assert found == expected


async def test_the_gateways_host_and_no_other_is_added(cloud: Cloud, runtime: Runtime) -> None:
    some = Allow(("pypi.org",), ("192.0.2.0/24",))
    for egress, url, allowed in (
        (Closed(), "https://gateway.example:8443", ([], ["gateway.example"])),
        (some, "http://203.0.113.7:8182", (["192.0.2.0/24", "203.0.113.7/32"], ["pypi.org"])),
    ):
        with pytest.raises(SandboxNotReady, match=f"gateway is not reached at {url}: .*the URL of `gateway`"):
            await runtime.start(spec(cloud, egress=egress, gateway_session=Echoing(url)))
        access = cloud.boxes[-1].definition.network_access
        assert (list(access.allowed_cidrs), list(access.allowed_domains)) == allowed


@pytest.mark.parametrize(
    ("answer", "message"),
    [(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "status 502"), (b"SSH-2.0-x\r\n", "SSH-2.0-x")],
)
async def test_a_forwarder_to_the_wrong_server_is_an_error_before_anything_runs(
    cloud: Cloud, runtime: Runtime, answer: bytes, message: str
) -> None:
    async with gateway(cloud, answer) as session:
        with pytest.raises(SandboxNotReady, match=rf"not reached at {session.models_url}: .*{message}") as raised:
            await runtime.start(spec(cloud, gateway_session=session))
    assert raised.value.stage == "gateway"
    assert cloud.running == []


async def test_a_gateway_without_a_public_address_is_refused(cloud: Cloud, runtime: Runtime) -> None:
    with pytest.raises(RuntimeUnavailable, match="`gateway`, PORT=URL"):
        await runtime.start(spec(cloud, gateway_session=Echoing(None)))
    assert cloud.boxes == []


async def test_secrets_are_in_the_environment_and_nowhere_else(cloud: Cloud, runtime: Runtime) -> None:
    async with gateway(cloud) as session:
        sandbox = await runtime.start(
            spec(
                cloud,
                secrets={"API_KEY": "secret-of-the-spec"},
                gateway_session=session,
                setup=(Command(("true",), env={"GIT_TOKEN": "secret-of-a-command"}),),
                env={"PLAIN": "plain"},
            )
        )
    token = (await sandbox.endpoint()).token
    done = await sandbox.exec(
        Command(("sh", "-c", 'echo "$API_KEY $MODELS_KEY $PLAIN $GIT_TOKEN$GEPA_TOKEN$HTTPS_PROXY"'))
    )
    assert done.stdout == b"secret-of-the-spec session-token plain \n", "Modal enforces egress itself"
    container = cloud.box(sandbox.id)
    words = " ".join(word for argv in container.argv for word in argv)
    for secret in ("secret-of-the-spec", "session-token", "secret-of-a-command", token):
        assert secret not in words
        assert all(secret not in value for value in container.tags.values())
        assert secret not in repr(sandbox)
