"""Commands in this process, as they are typed and as the product prints them."""

import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gepa_client.code_server import CodeServer
from tests.gepa_client.conftest import Cli, Ran
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.stored_code import git

Types = Cli

PLACEHOLDER = re.compile(r"(?<![\w/.-])[A-Z]{3,}(?![\w/.-])")


@pytest.fixture
def code_server(host: Host) -> CodeServer:
    """A server with nine rows whose code can be changed."""
    made = CodeServer()
    made.rows = {"train": [{"n": number} for number in range(9)]}
    made.capabilities.append("datasets")
    made.url = host.serve(made.handle)
    return made


@pytest.fixture
def own_state(in_process: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Private folders for state and temporary files; their paths are short because they hold sockets."""
    with tempfile.TemporaryDirectory(prefix="gepa-") as folder:
        for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"):
            monkeypatch.setenv(name, folder)
        monkeypatch.setenv("MODAL_CONFIG_PATH", f"{folder}/none")
        monkeypatch.delenv("MODAL_TOKEN_ID", raising=False)
        yield


@pytest.fixture
def types(in_process: Cli, tmp_path: Path) -> Types:
    """Runs the one command of a text that begins so; `words` take the place of placeholders.

    `within`: the working directory, below the test's.
    """

    def run(text: str, beginning: str, *, within: str = ".", stdin: str = "", **words: str) -> Ran:
        printed = {found.rstrip(" ,.)") for found in re.findall(rf"{re.escape(beginning)}[^`\n;]*", text)}
        assert len(printed) == 1, (beginning, printed, text)
        line = printed.pop()
        for placeholder, word in words.items():
            line = line.replace(placeholder, word)
        assert not PLACEHOLDER.search(line.replace("ANOTHER CHANGE", "")), line
        tool, *arguments = shlex.split(line)
        assert shlex.join([tool, *arguments]) == line  # a shell would change nothing else in it
        folder = tmp_path / within
        if tool == "less":
            return Ran(0, "".join((folder / name).read_text() for name in arguments), "")
        if tool == "git":
            return Ran(0, git(folder, *arguments), "")
        assert tool == "evolverpc"
        ended = in_process(*arguments, within=within, stdin=stdin)
        assert ended.status == 0, (line, ended.stdout, ended.stderr)
        return ended

    return run


@pytest.fixture
def cli(in_process: Cli) -> Cli:
    return in_process
