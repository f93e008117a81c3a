"""Details of a job's run, as the page loads them."""

import json

from gepa_service.model.work import Work
from tests.gepa_service.routes.conftest import Caller


async def test_each_detail_of_a_run_is_there_for_its_tenant_alone(
    viewer: Caller, stranger: Caller, ended: Work
) -> None:
    stream = await viewer("GET", f"/job/{ended.id}/stream")  # to its end
    events = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: {")]
    proposal = next(each for each in events if each.get("event") == "proposal" and each["candidate"] is not None)
    component = next(each for each in events if each.get("event") == "run")["components"][0]
    best = proposal["candidate"]
    for path, member in (
        (f"cell?candidate={best}&row=0", "result"),
        (f"cell?candidate={best}&row=0&part=input", "text"),
        (f"text?candidate={best}&component={component}", "text"),
        (f"proposal?at={proposal['at']}", "rows"),
        ("explanation", "best"),
    ):
        answer = await viewer("GET", f"/job/{ended.id}/{path}")
        assert answer.status_code == 200, (path, answer.text)
        assert answer.json()[member] is not None
        assert (await stranger("GET", f"/job/{ended.id}/{path}")).status_code == 404
