"""What counts as an infrastructure failure among the exceptions of a program."""

from tests.rpc_server.program.data.fails import INFRASTRUCTURE, PROGRAM


async def test_failures_of_providers_and_networks_are_distinguished_from_the_programs_and_named_without_the_url(opened):
    async with opened("fails.py", workers=1) as running:
        results = await running.evaluate(*INFRASTRUCTURE, *PROGRAM)
    found = dict(zip((*INFRASTRUCTURE, *PROGRAM), results, strict=True))
    expected = {**dict.fromkeys(INFRASTRUCTURE, "infra_error"), **dict.fromkeys(PROGRAM, "program_error")}
    assert {name: result["status"] for name, result in found.items()} == expected
    rejected, outage, refused = (found[name]["error"] for name in ("a rejection wrapped", "wrapped", "refused"))
    assert rejected["message"] == "the agent failed [HTTP 401 from models.example:8443, fails.Answered]"
    assert outage["message"] == "no answer [HTTP 503 from models.example:8443, fails.Answered]"
    assert "[connection refused from 127.0.0.1:" in refused["message"]
