"""Runs git outside of sandboxes: no hook, no question, and credentials for one command alone."""

import base64
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

from evolverpc_common.git import LOCAL_TIMEOUT_S, GitError, run_git_async
from sandbox_runtime.api.sandbox import SandboxError

_USERNAME, _PASSWORD = "EVOLVERPC_GIT_USERNAME", "EVOLVERPC_GIT_PASSWORD"
_HELPER = f"""!f() {{ test "$1" = get && printf 'username=%s\\npassword=%s\\n' "${_USERNAME}" "${_PASSWORD}"; }}; f"""


class GitFailed(SandboxError):
    """Git refused; the text is its own words, without anything secret."""


class Credentials:
    """A user and a password for one server, given to git by the environment of one command."""

    def __init__(self, url: str, username: str, password: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._server = f"{parts.scheme}://{parts.netloc}"
        self._username, self._password = username, password

    def settings(self) -> dict[str, str]:
        """No helper but ours is asked, or told what worked: one of the user's own would write it down."""
        return {"credential.helper": "", f"credential.{self._server}.helper": _HELPER}

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
    network: bool = False,
    settings: Mapping[str, str] | None = None,
    credentials: Credentials | None = None,
    timeout_s: float = LOCAL_TIMEOUT_S,
) -> bytes:
    """Run git outside of sandboxes, and return what it writes to stdout.

    `bare`: the folder itself is the repository. `network`: git may reach other repositories.

    Raises:
        GitFailed: git failed, is not installed, or took longer than `timeout_s` seconds.
    """
    variables = {"GIT_DIR": "."} if bare else {}
    settings = {"core.logAllRefUpdates": "false", **(settings or {})}
    if credentials:
        settings |= credentials.settings()
        variables |= credentials.variables()
    try:
        return await run_git_async(
            *arguments,
            folder=folder,
            stdin=stdin,
            settings=settings,
            variables=variables,
            network=network,
            timeout_s=timeout_s,
        )
    except GitError as error:
        text = error.stderr or str(error)
        raise GitFailed(f"git {arguments[0]}: {credentials.redacted(text) if credentials else text}") from None


async def line(*arguments: str, folder: Path, bare: bool = False) -> str:
    """Return the one line that the command writes. Raises as `git`."""
    return (await git(*arguments, folder=folder, bare=bare)).decode("utf-8", "surrogateescape").rstrip("\n")
