"""What is shown to whom."""

import asyncio

import pytest

from tests.sandbox_runtime.ground import NAMES_OF_ANY_SHELL, Ground, local, parse_request
from tests.sandbox_runtime.suite.acting import command_lines, environment_of, output, records_of, some, until, up
from tests.sandbox_runtime.suite.session import Answering

ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


class Keeping:
    async def test_the_environment_is_what_the_spec_says_and_nothing_of_the_hosts(
        self, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOST_API_KEY", "host-secret")
        async with up(ground, env={"PLAIN": "a b"}, secrets={"SECRET": "s3"}) as sandbox:
            allowed = NAMES_OF_ANY_SHELL | ground.own_names | set(ground.prepared.env)
            given = {"SUITE_RUN": ground.run, "PLAIN": "a b", "SECRET": "s3"}
            command = await environment_of(sandbox, ground.python(ENVIRONMENT, env={"OWN": "o"}))
            server = (await parse_request(await sandbox.endpoint()))[1]["env"]
            assert {name: command[name] for name in command.keys() - allowed} == {**given, "OWN": "o"}
            assert server.keys() - allowed == {*given, "GEPA_LISTEN", "GEPA_TOKEN", "GEPA_MEMORY_MB"}
            assert "host-secret" not in str((command, server))
            workspace = (await output(sandbox, ("pwd",))).strip()
            own = [command["PATH"].split(":")[0], command["HOME"], command["TMPDIR"]]
            assert own == [f"{workspace}/{name}" for name in ("bin", "home", "tmp")]

    async def test_secrets_are_shown_nowhere(self, ground: Ground) -> None:
        secret = f"secret-{ground.run}"
        spec = ground.spec(
            secrets={"KEY": secret}, setup=(ground.shell("exit 0", env={"OTHER": secret}, stdin=secret.encode()),)
        )
        assert secret not in repr(spec)
        sandbox = await ground.runtime.start(spec)
        try:
            token = (await sandbox.endpoint()).token
            running = asyncio.create_task(sandbox.exec(ground.shell("sleep 60", env={"BUSY": ground.run})))
            await until(lambda: some(ground, "BUSY"))
            shown = [repr(spec), repr(sandbox), repr(await sandbox.endpoint()), *command_lines(), *records_of(ground)]
            assert not [text for text in shown if secret in text or token in text]
            running.cancel()
            await asyncio.wait([running])
        finally:
            await sandbox.close()

    @local
    async def test_a_way_out_answers_where_its_variables_say(self, ground: Ground) -> None:
        session = Answering()
        try:
            async with up(ground, gateway_session=session) as sandbox:
                code = "import os, urllib.request as u; print(u.urlopen(os.environ['OPENAI_BASE_URL']).read().decode())"
                told = await sandbox.exec(ground.python(code))
                assert (told.stdout, told.stderr) == (b"from outside\n", b"")
        finally:
            await session.close()
