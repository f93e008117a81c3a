"""The folder in which one environment is built, the limit of its size, and the commands that run in it."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from evolverpc_common.build_cache import BUILD_S, FILES, discard
from evolverpc_common.python_package_managers import uv_variables
from evolverpc_common.shielded import await_shielded, finished_before
from sandbox_runtime.api.sandbox import EnvironmentMissing, RuntimeInterrupted
from sandbox_runtime.api.spec import AUTHORITY, Command

BUILD_MB = 8192
"""The largest size of one build's folder, in MiB; files linked several times count once."""

KEPT_FREE_MB = 512
"""Free space that a build leaves on the disk, in MiB: deleted files that it keeps open are in no folder."""

_MIB = 2**20
_LOOK_S = 0.2
_LOOKS = 20
_MEASURE_S = 1.0
_SHARE = 10
"""Measuring may take a tenth of the time."""

T = TypeVar("T")


async def within(folder: Path, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, cancelled if `folder` exceeds `BUILD_MB` MiB or the disk is nearly full.

    Raises:
        EnvironmentMissing: it was cancelled, or `folder` is too large at its end.
    """
    watching = asyncio.ensure_future(_excess(folder))
    try:
        done = await finished_before(watching, work)
        if done is None:
            raise EnvironmentMissing(f"the environment cannot be built: {watching.result()}")
        if await _used(folder) > BUILD_MB * _MIB:
            raise EnvironmentMissing(f"the environment cannot be built: {_too_much()}")
        return done.result()
    finally:
        watching.cancel()
        await await_shielded(asyncio.wait({watching}))


async def _excess(folder: Path) -> str:
    """Wait for a violation, and return it.

    The folder is measured from time to time, and at once if as much was written to the disk as it may still hold.
    """
    used, free, due = 0, _free(folder), 0.0
    while True:
        await asyncio.sleep(_LOOK_S)
        now_free = _free(folder)
        if now_free < KEPT_FREE_MB * _MIB:
            return f"the disk of {folder} has less than {KEPT_FREE_MB} MiB left"
        began = time.monotonic()
        if began >= due or free - now_free > BUILD_MB * _MIB - used:
            used, free = await _used(folder), now_free
            if used > BUILD_MB * _MIB:
                return _too_much()
            due = time.monotonic() + max(_MEASURE_S, _SHARE * (time.monotonic() - began))


def _too_much() -> str:
    return f"it writes more than {BUILD_MB} MiB to the disk; ask for fewer or smaller packages"


def _free(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


async def _used(folder: Path) -> int:
    """Return the bytes that the folder takes on its disk, by `du`, which handles paths of any depth.

    It gives up if a folder is removed while it looks, as installers do with theirs: then it looks again.
    """
    for _ in range(_LOOKS):
        process = await asyncio.create_subprocess_exec(
            *("du", "-skx", str(folder)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        size = output.partition(b"\t")[0]
        if size.isdigit():
            return int(size) * 1024
        await asyncio.sleep(_LOOK_S)
    raise EnvironmentMissing(f"the environment cannot be built: du cannot measure {folder}")


QUERY_TIMEOUT_S = 600.0
"""Seconds that a program may take; uv fetches a Python in this time."""


async def run_quietly(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """Run a program of this machine. Return its status, 1 if it cannot run or times out, and its output.

    The output is stderr if it failed, else stdout.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return 1, f"{argv[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(QUERY_TIMEOUT_S):
            written, complained = await process.communicate()
        status = await process.wait()
        return status, (complained if status else written).decode("utf-8", "replace")
    except TimeoutError:
        return 1, f"it took longer than {QUERY_TIMEOUT_S:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


_USERINFO = re.compile(r"://[^/\s,]*@")
_OF_USER = re.compile(r"UV_INDEX_\w+_(USERNAME|PASSWORD)")
_TRUST = f"""
while [ "$1" != -- ]; do cat -- "$1"; echo; shift; done > "$0"
echo "${AUTHORITY}" >> "$0"; shift; exec "$@"
"""

TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables that name the file of the certificates that programs trust."""

_TRUST_OF_TOOLS = ("NPM_CONFIG_CAFILE", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO")

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def certificate_bundle() -> str | None:
    """Return the bundle of certificates that this process's environment names, or the system's."""
    named = os.environ.get("SSL_CERT_FILE")
    return next((path for path in (named, *_BUNDLES) if path is not None and Path(path).is_file()), None)


_PASSED = {
    *("LANG", "LC_ALL", "TZ"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
    *("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE"),
    *("UV_INSECURE_HOST", "UV_HTTP_TIMEOUT", "UV_EXCLUDE_NEWER", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS"),
    *("NPM_CONFIG_REGISTRY", "NPM_CONFIG_CAFILE", "NPM_CONFIG_OFFLINE"),
}
_PASSED_PREFIX = "UV_INDEX"
"""`UV_INDEX` and the credentials of a named index, `UV_INDEX_NAME_USERNAME`."""


def build_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name sources of packages; no others, because build scripts are untrusted.

    They may hold passwords: see `without_passwords`.
    """
    passed = {
        name: value for name, value in environ.items() if name.upper() in _PASSED or name.startswith(_PASSED_PREFIX)
    }
    return {**uv_variables(environ), **passed}


def readable_by(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the files and folders of this machine that they name."""
    for value in variables.values():
        for word in value.replace(",", " ").split():
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.exists():
                yield str(path)


def without_passwords(sources: Mapping[str, str]) -> dict[str, str]:
    """Return variables that name sources of packages, without the user names and passwords in them."""
    return {name: _USERINFO.sub("://", value) for name, value in sources.items() if not _OF_USER.fullmatch(name)}


def trusting(argv: Sequence[str], variables: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return a command and its variables such that it trusts the authority that they name, if they name one."""
    if AUTHORITY not in variables:
        return (*argv,), {**variables}
    file, names = f"{variables['TMPDIR']}/certificates.pem", (*TRUST, *_TRUST_OF_TOOLS)
    trusted = dict.fromkeys(filter(None, (certificate_bundle(), *map(variables.get, names))))
    return ("sh", "-c", _TRUST, file, *trusted, "--", *argv), {**variables, **dict.fromkeys(names, file)}


class RunBuildCommand(Protocol):
    """Runs one command of a build, which may execute untrusted code such as a dependency's `setup.py`."""

    async def __call__(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float, readable: Sequence[str]
    ) -> tuple[int, bytes]:
        """Run a command to its end; return its status (128 + signal if killed) and its output, stderr included.

        It may write in `cwd` and below only, which already holds files; a later command continues with them. What it
        writes must be readable by the sandboxes that use it. `env` is its whole environment. `readable`: files and
        folders outside `/usr` that it needs to see, at the same path. It has network access, to fetch packages. Nothing
        that it started is left when this returns, raises or is cancelled.

        Raises:
            TimeoutError: it ran longer than `timeout_s` seconds.
            SandboxError: it cannot be run.
        """
        ...


PROGRAM = "program"
"""The checkout that a repository's own tool installs in: later, in `VENV`, which every jail shows, a link."""

_SCRATCH = "scratch"
_WITH_INPUT = 'exec "$@" < "$0"'
_TAIL_BYTES = 8192
_KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True)
class BuildFolder:
    """The folder in which one environment is built.

    After the first command nothing in it can be trusted; this process writes to it only in `make`.
    """

    folder: Path
    runner: RunBuildCommand
    on_progress: Callable[[str], None]

    def make(self, checkout: Sequence[Command] = ()) -> None:
        """Make the folder, and keep the input of the commands of `check_out` in it, before any command runs. Blocks."""
        for needed in (FILES, _SCRATCH):
            (self.folder / needed).mkdir(parents=True)
        for number, command in enumerate(checkout):
            command.write_input(self._input(number))
        for folder in (self.folder.parent, self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())):
            folder.chmod(0o755)  # for any umask: a sandbox may have a user of its own

    def _input(self, number: int) -> Path:
        return self.folder / _SCRATCH / f"input-{number}"

    async def check_out(self, checkout: Sequence[Command], where: str) -> Path:
        """Make `PROGRAM` in a folder by these commands, and return its path. Raises as `run`."""
        for number, command in enumerate(checkout):
            argv = ("sh", "-ec", _WITH_INPUT, str(self._input(number)), *command.argv)
            await self.run(argv, readable=(), cwd=self.folder / where / command.cwd)
        return self.folder / where / PROGRAM

    def clean(self, kept: Collection[str]) -> None:
        """Remove everything but these folders. Blocks."""
        for path in self.folder.iterdir():
            if path.name not in kept:
                discard(path)

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        readable: Sequence[str],
        cwd: Path | None = None,
    ) -> str:
        """Run a command here, or in a folder below, and return its output, stderr included.

        Its caches and home are in the scratch folder, so that builds cannot affect each other.

        Raises:
            EnvironmentMissing: it failed, and the message has the end of its output; or the folder is too large.
            RuntimeInterrupted: it was killed.
        """
        scratch = str(self.folder / _SCRATCH)
        given = build_variables(os.environ)
        variables = {
            "PATH": os.defpath,
            **given,
            "HOME": scratch,
            "TMPDIR": scratch,
            "UV_CACHE_DIR": f"{scratch}/uv",
            "NPM_CONFIG_CACHE": f"{scratch}/npm",
            **(env or {}),
        }
        name = Path(argv[0]).name
        argv = argv if cwd is None else ("env", "-C", str(cwd), *argv)
        building = self.runner(argv, self.folder, variables, BUILD_S, [*readable, *readable_by(given)])
        try:
            status, output = await within(self.folder, building)
        except TimeoutError:
            raise EnvironmentMissing(f"{name} took longer than {BUILD_S:g} s to build the environment") from None
        if status == _KILLED:
            raise RuntimeInterrupted(f"the environment is not built: {name} was killed")
        if status != 0:
            end = output[-_TAIL_BYTES:].decode("utf-8", "replace").strip()
            raise EnvironmentMissing(f"the environment cannot be built: {name} exited with status {status}\n{end}")
        return output.decode("utf-8", "replace")
