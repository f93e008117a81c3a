"""What counts as an infrastructure failure among the exceptions of a program."""

from tests.rpc_server.program.data.fails import INFRASTRUCTURE, PROGRAM


async def test_failures_of_providers_and_networks_are_distinguished_from_the_programs(opened):
    async with opened("fails.py", workers=1) as running:
        results = await running.evaluate(*INFRASTRUCTURE, *PROGRAM)
    found = dict(zip((*INFRASTRUCTURE, *PROGRAM), (result["status"] for result in results), strict=True))
    assert found == {**dict.fromkeys(INFRASTRUCTURE, "infra_error"), **dict.fromkeys(PROGRAM, "program_error")}


async def test_the_message_names_the_status_the_host_and_the_type_and_no_more_of_the_url(opened):
    async with opened("fails.py", workers=1) as running:
        rejection, outage, reject = await running.evaluate("a rejection wrapped", "wrapped", "refused")
    assert rejection["error"]["message"] == "the agent failed [HTTP 401 from models.example:8443, fails.Answered]"
    assert outage["error"]["message"] == "no answer [HTTP 503 from models.example:8443, fails.Answered]"
    assert "[connection refused from 127.0.0.1:" in reject["error"]["message"]
