"""The files of a built page, which its package holds."""

from importlib import resources

INDEX = "index.html"
ASSETS = {"page.js": "text/javascript", "page.css": "text/css"}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What browsers let the page load: its own script and style, and answers of its server."""


class PageMissing(Exception):
    """The built page is not installed."""


def asset(name: str, package: str = "gepa_client.page") -> bytes:
    """Return a file of the page that a package holds in its folder `dist`.

    Raises:
        PageMissing: it is not there.
    """
    file = resources.files(package) / "dist" / name
    if not file.is_file():
        raise PageMissing(
            f"this installation lacks the page ({name}): install evolverpc from a wheel, or build the page with "
            "`npm ci && npm run build` in clients/dashboard"
        )
    return file.read_bytes()


def built_page() -> dict[str, bytes]:
    """Return the files of the page by name. Raises `PageMissing`."""
    return {name: asset(name) for name in (INDEX, *ASSETS)}
