"""Small git repositories, and a server that requires a password."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import BasicAuth, web

from tests.support.web_hosts import web_host

COMMITTER = {
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "T"), ("EMAIL", "t@t"))
    },
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def git(folder: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | COMMITTER
    return subprocess.check_output(["git", "-C", str(folder), *arguments], text=True, env=environment).strip()


def commit(folder: Path, files: Mapping[str, str]) -> str:
    """Commit these files, in a repository that is created if missing; return the id."""
    if not (folder / ".git").exists():
        folder.mkdir(parents=True, exist_ok=True)
        git(folder, "init", "--quiet", "--initial-branch=trunk")
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message=work")
    return git(folder, "rev-parse", "HEAD")


@dataclass
class GitHost:
    """A git server on loopback. `seen`: who had the password, on the machine, while it was used: (program, where)."""

    port: int
    password: str
    authorized: int = 0
    seen: set[tuple[str, str]] = field(default_factory=set)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def git_host(root: Path, password: str, redirect_to: str | None = None) -> AsyncIterator[GitHost]:
    """Serves the repositories in `root` by `git http-backend`; `redirect_to`: redirect to this address instead."""
    host = GitHost(0, password)

    async def answer(request: web.Request) -> web.StreamResponse:
        if redirect_to is not None:
            raise web.HTTPFound(redirect_to + request.path_qs)
        given = request.headers.get("Authorization", "")
        if not given or BasicAuth.decode(given).password != password:
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": 'Basic realm="git"'}, text=f"not with {given}")
        host.authorized += 1
        host.seen |= await asyncio.to_thread(_who_has, password)
        return await http_backend(request, root, request.path)

    async with web_host(answer) as served:
        host.port = int(served.rpartition(":")[2])
        yield host


async def http_backend(request: web.Request, root: Path, path: str) -> web.Response:
    """What git itself answers about the repository at this path below `root`."""
    process = await asyncio.create_subprocess_exec(
        *("git", "http-backend"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "REQUEST_METHOD": request.method,
            "PATH_INFO": path,
            "QUERY_STRING": request.query_string,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "REMOTE_USER": "user",
            "REMOTE_ADDR": "127.0.0.1",
        },
    )
    output, _ = await process.communicate(await request.read())
    head, _, body = output.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
    status = int(headers.pop("Status", "200 OK").split()[0])
    return web.Response(status=status, headers=headers, body=body)


def _who_has(secret: str) -> set[tuple[str, str]]:
    """Processes in whose environment or arguments the secret is, by what they run."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "comm").read_text().strip()
            found |= {
                (name, where) for where in ("environ", "cmdline") if secret.encode() in (process / where).read_bytes()
            }
        except OSError:
            continue  # it has ended, or belongs to another user
    return found
