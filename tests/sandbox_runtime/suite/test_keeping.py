"""What is shown to whom."""

import asyncio

import pytest

from tests.sandbox_runtime.backend import NAMES_OF_ANY_SHELL, BackendUnderTest, parse_request
from tests.sandbox_runtime.suite.acting import command_lines, environment_of, output, records_of, up
from tests.support.waiting import eventually


class TestKeeping:
    async def test_the_environment_is_that_of_the_spec_and_not_the_hosts(
        self, backend: BackendUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOST_API_KEY", "host-secret")
        async with up(backend, env={"PLAIN": "a b"}, secrets={"SECRET": "s3"}) as sandbox:
            allowed = NAMES_OF_ANY_SHELL | backend.own_names | set(backend.prepared.env)
            given = {"SUITE_RUN": backend.run, "PLAIN": "a b", "SECRET": "s3"}
            command = await environment_of(backend, sandbox, {"OWN": "o"})
            server = (await parse_request(await sandbox.endpoint()))[1]["env"]
            assert {name: command[name] for name in command.keys() - allowed} == {**given, "OWN": "o"}
            assert server.keys() - allowed == {*given, "GEPA_LISTEN", "GEPA_TOKEN", "GEPA_MEMORY_MB"}
            assert "host-secret" not in str((command, server))
            workspace = (await output(sandbox, ("pwd",))).strip()
            own = [command["PATH"].split(":")[0], command["HOME"], command["TMPDIR"]]
            assert own == [f"{workspace}/{name}" for name in ("bin", "home", "tmp")]

    async def test_secrets_are_shown_nowhere(self, backend: BackendUnderTest) -> None:
        secret = f"secret-{backend.run}"
        spec = backend.spec(
            secrets={"KEY": secret}, setup=(backend.shell("exit 0", env={"OTHER": secret}, stdin=secret.encode()),)
        )
        assert secret not in repr(spec)
        sandbox = await backend.runtime.start(spec)
        try:
            token = (await sandbox.endpoint()).token
            running = asyncio.create_task(sandbox.exec(backend.shell("sleep 60", env={"BUSY": backend.run})))
            await eventually(lambda: backend.processes("BUSY"))
            shown = [repr(spec), repr(sandbox), repr(await sandbox.endpoint()), *command_lines(), *records_of(backend)]
            assert not [text for text in shown if secret in text or token in text]
            running.cancel()
            await asyncio.wait([running])
        finally:
            await sandbox.close()
