"""Runs git outside of sandboxes: no hook, no question, and credentials for one command alone."""

import asyncio
import base64
import os
import re
import signal
import urllib.parse
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from evolverpc_common.shielded import all_of
from sandbox_runtime.api.sandbox import SandboxError

LOCAL_S = 300.0
"""Seconds for a command that reaches no other machine."""

_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    "core.logAllRefUpdates": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "fetch.recurseSubmodules": "false",
    "protocol.ext.allow": "never",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",  # one that somebody committed as files is none
}

_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",  # whoever would ask a person gets an empty answer
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
}

_KEPT = {
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSL_CAINFO",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
}
"""How the user's git reaches others. All else that begins so is of one repository, or would write credentials down."""

_USERNAME, _PASSWORD = "EVOLVERPC_GIT_USERNAME", "EVOLVERPC_GIT_PASSWORD"
_HELPER = f"""!f() {{ test "$1" = get && printf 'username=%s\\npassword=%s\\n' "${_USERNAME}" "${_PASSWORD}"; }}; f"""
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")


class GitFailed(SandboxError):
    """Git refused; the text is its own words, without anything secret."""


class Credentials:
    """A user and a password for one server, given to git by the environment of one command."""

    def __init__(self, url: str, username: str, password: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._server = f"{parts.scheme}://{parts.netloc}"
        self._username, self._password = username, password

    def settings(self) -> list[tuple[str, str]]:
        """No helper but ours is asked, or told what worked: one of the user's own would write it down."""
        return [("credential.helper", ""), (f"credential.{self._server}.helper", _HELPER)]

    def variables(self) -> dict[str, str]:
        """What the helper says."""
        return {_USERNAME: self._username, _PASSWORD: self._password}

    def redacted(self, text: str) -> str:
        """The text without the password, in any form that git or a server might echo."""
        pair = f"{self._username}:{self._password}".encode()
        forms = {self._password, urllib.parse.quote(self._password, safe=""), base64.b64encode(pair).decode()}
        for form in sorted(forms - {""}, key=len, reverse=True):
            text = text.replace(form, "***")
        return text


async def git(
    *arguments: str,
    folder: Path,
    stdin: bytes = b"",
    bare: bool = False,
    elsewhere: bool = False,
    settings: Mapping[str, str] | None = None,
    credentials: Credentials | None = None,
    timeout_s: float = LOCAL_S,
) -> bytes:
    """What the command writes to its stdout. Nothing that it started is left when this ends, however it does.

    `bare`: the folder itself is the repository. `elsewhere`: it may reach other repositories; else none, so that a
    partial clone fetches nothing by commands that its own configuration names. `settings`: before the repository's.

    Raises:
        GitFailed: it failed, is not there, or took longer than `timeout_s` seconds.
    """
    all_settings = [*(settings or {}).items(), *_SETTINGS.items(), *(credentials.settings() if credentials else [])]
    environment = _environment(os.environ) | _as_variables(all_settings)
    environment |= {"GIT_DIR": "."} if bare else {}
    environment |= {} if elsewhere else {"GIT_ALLOW_PROTOCOL": ""}
    if credentials:
        environment |= credentials.variables()
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *arguments,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise GitFailed(f"git cannot be run: {error.strerror}") from None
    try:
        async with asyncio.timeout(timeout_s):
            output, complaint = await process.communicate(stdin)
    except TimeoutError:
        raise GitFailed(f"git {arguments[0]} took longer than {timeout_s:g} s") from None
    finally:
        await all_of(_end(process))
    if process.returncode != 0:
        said = _USERINFO.sub("***@", complaint.decode("utf-8", "replace").strip())
        raise GitFailed(f"git {arguments[0]}: {credentials.redacted(said) if credentials else said}")
    return output


async def line(*arguments: str, folder: Path, bare: bool = False) -> str:
    """The one line that the command writes. Raises as `git`."""
    return (await git(*arguments, folder=folder, bare=bare)).decode("utf-8", "surrogateescape").rstrip("\n")


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if not name.startswith("GIT_") or name in _KEPT}
    kept.pop("SSH_ASKPASS", None)
    kept.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes -oConnectTimeout=20")
    return kept | _ENVIRONMENT


def _as_variables(settings: list[tuple[str, str]]) -> dict[str, str]:
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables
