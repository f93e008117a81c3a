"""The clients that programs use, led to the gateway by nothing but the variables of a sandbox."""

import asyncio
import os
import sys

from tests.sandbox_runtime.gateway.conftest import Opens, Recorded, sandbox
from tests.sandbox_runtime.gateway.stub_provider import KEY, StubProvider, chunk, completion, events

PROGRAM = """
import openai
create = openai.OpenAI().chat.completions.create
asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 10}
print(create(**asked).choices[0].message.content)
print("".join(part.choices[0].delta.content for part in create(**asked, stream=True)))
"""


async def test_the_openai_client_works_and_sees_no_usage_that_it_did_not_request(
    opened: Opens, provider: StubProvider, recorded: Recorded
) -> None:
    whole, stream = (
        completion(),
        events([chunk("he"), chunk("llo"), chunk(None, {"prompt_tokens": 1}), b"data: [DONE]\n\n"]),
    )
    provider.answer = lambda request: (stream if len(provider.seen) > 1 else whole)(request)
    async with opened() as gateway:
        one = await sandbox(gateway)
        env = {
            "PATH": os.environ["PATH"],
            **one.session.env(one.models, one.tunnel),
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", PROGRAM), env=env, stdout=-1, stderr=-1
        )
        try:
            async with asyncio.timeout(90):
                stdout, stderr = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert stdout.decode().split() == ["hello", "hello"], stderr.decode()
    assert [seen.headers["Authorization"] for seen in provider.seen] == [f"Bearer {KEY}"] * 2
    assert [call.streamed for call in recorded.calls] == [False, True]
