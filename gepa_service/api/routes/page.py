"""The page of the service, for people; its files hold nothing of any tenant, so every caller gets them.

The page uses the same routes as programs, with a session instead of a key.
"""

from fastapi import APIRouter, Response

from gepa_client.page.built_page import ASSETS, INDEX, POLICY, PageMissing, asset
from gepa_service.api import page
from gepa_service.api.problems import Problem, not_found

router = APIRouter(include_in_schema=False)

HEADERS = {"Content-Security-Policy": POLICY, "Cross-Origin-Opener-Policy": "same-origin"}


@router.get("/")
def index() -> Response:
    """Return the page."""
    return _sent(INDEX, "text/html")


@router.get("/assets/{name}")
def file(name: str) -> Response:
    """Return a file of the page."""
    if name not in ASSETS:
        raise not_found("file of the page")
    return _sent(name, ASSETS[name])


def _sent(name: str, media_type: str) -> Response:
    try:
        body = asset(name, page.__name__)
    except PageMissing as error:
        raise Problem(503, "no-page", "No page", str(error)) from None
    return Response(body, media_type=f"{media_type}; charset=utf-8", headers=HEADERS)
