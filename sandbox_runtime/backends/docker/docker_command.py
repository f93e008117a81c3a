"""Run the `docker` command line, and explain what it needs if it cannot be used."""

import asyncio
import json
import os
import subprocess
from collections.abc import Sequence

from sandbox_runtime.api.sandbox import RuntimeUnavailable, SandboxError

CALL_S = 60.0
"""Seconds within which the daemon must answer."""

OLDEST_API = (1, 41)
"""Docker 20.10, and what Podman 4 offers in its place."""

_INSTALL = "install Docker (https://docs.docker.com/engine/install), or Podman and set DOCKER_HOST to its socket"
_LIMITS = {"MemoryLimit": "memory", "PidsLimit": "processes", "CPUCfsQuota": "cpu"}


class CommandFailed(SandboxError):
    """A docker command failed at a daemon that can be used."""


def run_docker(*arguments: str, timeout_s: float = CALL_S) -> str:
    """Return what a docker command prints. Blocks.

    Raises:
        RuntimeUnavailable: there is no docker, no daemon, or no right to use it. CommandFailed: another failure.
    """
    try:
        done = subprocess.run(  # noqa: S603  no shell
            ("docker", *arguments),  # noqa: S607  the one on PATH, as in a shell
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError:
        raise RuntimeUnavailable(f"the command `docker` is not on PATH: {_INSTALL}") from None
    except subprocess.TimeoutExpired:
        raise RuntimeUnavailable(f"{daemon()} does not answer `docker {arguments[0]}` in {timeout_s:g} s") from None
    if done.returncode != 0:
        raise failure(arguments[0], done.stderr.decode("utf-8", "replace"))
    return done.stdout.decode("utf-8", "replace")


async def docker(*arguments: str, timeout_s: float = CALL_S) -> str:
    """See `run_docker`."""
    return await asyncio.to_thread(run_docker, *arguments, timeout_s=timeout_s)


def daemon() -> str:
    """Name the daemon that the environment selects."""
    host = os.environ.get("DOCKER_HOST")
    return f"the daemon at DOCKER_HOST={host}" if host else "the Docker daemon"


def failure(what: str, stderr: str) -> RuntimeUnavailable | CommandFailed:
    """Return the error for what docker printed."""
    why = stderr.strip()[-2000:] or "it printed nothing"
    lower = why.lower()
    if "permission denied" in lower and ("connect" in lower or "socket" in lower or "publickey" in lower):
        return RuntimeUnavailable(
            f"{daemon()} refuses this user: {why}\nadd the user to the group `docker` and log in again, or set"
            " DOCKER_HOST to a daemon of this user's own"
        )
    if any(text in lower for text in ("cannot connect", "error during connect", "is the docker daemon running")):
        return RuntimeUnavailable(f"{daemon()} cannot be reached: {why}\nstart it, or set DOCKER_HOST to one that runs")
    return CommandFailed(f"docker {what} failed: {why}")


def check_daemon() -> None:
    """Raise `RuntimeUnavailable` if the daemon cannot be used, is too old, or cannot limit what a sandbox uses."""
    try:
        version = json.loads(run_docker("version", "--format", "{{json .Server}}"))
        info = json.loads(run_docker("info", "--format", "{{json .}}"))
    except CommandFailed as error:
        raise RuntimeUnavailable(f"{daemon()} cannot be used: {error}") from error
    api = tuple(int(part) for part in str(version.get("ApiVersion") or "0").split("."))
    if api < OLDEST_API:
        raise RuntimeUnavailable(
            f"{daemon()} is version {version.get('Version')}: Docker 20.10 or later is needed, or Podman 4"
        )
    if info.get("OSType", "linux") != "linux":
        raise RuntimeUnavailable(f"{daemon()} runs {info['OSType']} containers: switch it to Linux containers")
    if unlimited := [name for field, name in _LIMITS.items() if info.get(field) is False]:
        raise RuntimeUnavailable(
            f"{daemon()} cannot limit {', '.join(unlimited)}: enable these control groups on its machine"
        )


def image_id(name: str) -> str | None:
    """Return the digest of an image that the daemon has, None if it has none of this name. Blocks."""
    try:
        return run_docker("image", "inspect", "--format", "{{.Id}}", name).strip()
    except CommandFailed as error:
        if "no such image" in str(error).lower() or "image not known" in str(error).lower():
            return None
        raise


def remove_containers(names: Sequence[str]) -> None:
    """Remove containers, running or not; those that are gone already are no error. Blocks. Raises `SandboxError`."""
    try:
        run_docker("rm", "--force", "--volumes", *names)
    except CommandFailed as error:
        rest = [line for line in str(error).splitlines() if "No such container" not in line]
        if any("already in progress" not in line for line in rest):
            raise
