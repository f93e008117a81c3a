"""The built page of the service, which this package holds: `clients/dashboard` makes it."""

from importlib import resources

ASSETS = {"page.js": "text/javascript", "page.css": "text/css"}
INDEX = "index.html"


class PageMissing(Exception):
    """The built page is not installed."""


def page_file(name: str) -> bytes:
    """Return a file of the page. Raises `PageMissing`."""
    file = resources.files(__name__) / "dist" / name
    if not file.is_file():
        raise PageMissing(
            f"this installation lacks the page ({name}): install evolverpc from a wheel, or build the page with "
            "`npm ci && npm run build` in clients/dashboard"
        )
    return file.read_bytes()
