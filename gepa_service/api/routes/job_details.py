"""Parts of a job's run that the page loads when they are asked for: those that `evolverpc watch` answers too."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gepa_client.errors import NoSuchRun
from gepa_client.page.event_log import to_json
from gepa_client.page.page_fact import NotThere
from gepa_client.page.run_details import DETAILS, BadQuery, RunDetails
from gepa_service.api.access import Parts, Reader
from gepa_service.api.pages import known_work
from gepa_service.api.problems import Problem
from gepa_service.api.routes.repositories import Id

router = APIRouter(include_in_schema=False)


def detail(job_id: Id, caller: Reader, service: Parts, request: Request) -> Response:
    """Return the detail of a job's run that the path names. Raises a 404 problem if it is not there."""
    known_work(caller.records, job_id, "optimize")
    try:
        found = RunDetails(service.store, job_id).read(request.url.path.rpartition("/")[2], request.query_params)
        return Response(to_json(found), media_type="application/json")
    except NoSuchRun:
        raise Problem(404, "not-found", "Not found", "the job has no run yet") from None
    except NotThere as error:
        raise Problem(404, "not-found", "Not found", str(error)) from None
    except BadQuery as error:
        raise Problem(422, "invalid", "Field not valid", str(error)) from None


for name in DETAILS:
    router.add_api_route(f"/job/{{job_id}}/{name}", detail)
