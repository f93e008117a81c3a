"""The optimizer as a function of Modal: its command line, how it resumes after a restart, and what it refuses."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.modal_cloud import Cloud
from tests.support.waiting import until

SOURCE = Path(__file__).parents[3] / "deploy" / "modal_app.py"
CLIENT = """#!{python}
import json, os, sys
with open({calls!r}, "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + chr(10))
if sys.argv[1] == "runs":
    print(open({stored!r}).read(), end="")
sys.exit(int(os.environ.get("STATUS", "0")) if sys.argv[1] in ("optimize", "resume") else 0)
"""


@pytest.fixture(scope="module")
def deployed() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("modal_app_under_test", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[spec.name]


class Container:
    """Where the function runs: `evolverpc` is a script that notes what it is asked, `stored` the runs it lists."""

    def __init__(self, deployed: ModuleType, folder: Path) -> None:
        self.stored, self._calls = folder / "stored", folder / "calls"
        self.stored.touch()
        self._calls.touch()
        client = folder / "evolverpc"
        client.write_text(CLIENT.format(python=sys.executable, calls=str(self._calls), stored=str(self.stored)))
        client.chmod(0o755)
        self._optimize = deployed.start_or_resume

    def optimize(self, arguments: list[str], files: dict[str, bytes] | None = None) -> Any:
        return self._optimize("run-1", arguments, files or {})

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self._calls.read_text().splitlines()]


@pytest.fixture
def container(deployed: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Container:
    @contextlib.contextmanager
    def forward(port: int) -> Iterator[SimpleNamespace]:
        with socket.create_connection(("127.0.0.1", port)):  # it is listened to
            yield SimpleNamespace(url="https://tunnel.example")

    monkeypatch.setattr("modal.forward", forward)
    monkeypatch.setattr(deployed, "results", SimpleNamespace(commit=lambda: None))
    monkeypatch.setattr(deployed, "FILES", str(tmp_path / "files"))
    monkeypatch.setattr(deployed, "TOKEN_FILE", str(tmp_path / "git-token"))
    monkeypatch.setattr(deployed, "LEASE_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(deployed, "FORWARDED_PORT", free.getsockname()[1])
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Container(deployed, tmp_path)


def test_a_run_is_begun_in_sandboxes_that_reach_the_gateway_by_its_tunnel(container: Container) -> None:
    assert container.optimize(["--repo", "https://x.example/y"], {"rows/train.jsonl": b"{}"}) == 0
    asked = container.calls[-1]
    assert asked[:3] == ["optimize", "--repo", "https://x.example/y"]
    assert " ".join(asked).endswith("--sandbox modal --gateway 8765=https://tunnel.example")
    assert asked[asked.index("--name") + 1] == "run-1"


def test_a_restarted_function_resumes_its_run_and_ends_the_sandboxes_of_the_first(container: Container) -> None:
    runs = [{"id": "r-other", "name": "other", "status": "paused"}, {"id": "r-7", "name": "run-1", "status": "running"}]
    container.stored.write_text("".join(json.dumps(run) + "\n" for run in runs))
    assert container.optimize(["--repo", "https://x.example/y"]) == 0
    listed, swept, resumed = container.calls
    assert listed == ["runs", "--json"]
    assert swept == ["sandboxes", "--sandbox", "modal", "--run", "r-7", "--sweep"]
    assert resumed[:2] == ["resume", "r-7"]
    assert resumed[-1] == "8765=https://tunnel.example"


def test_a_paused_run_is_tried_again_and_a_failed_one_is_not(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATUS", "3")
    with pytest.raises(RuntimeError, match="has paused"):
        container.optimize([])
    monkeypatch.setenv("STATUS", "1")
    assert container.optimize([]) == 1


def test_a_git_token_is_passed_in_a_file_that_only_its_owner_reads(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TOKEN", "ghs-secret")
    assert container.optimize([]) == 0
    asked = container.calls[-1]
    file = Path(asked[asked.index("--git-token-file") + 1])
    assert file.read_text() == "ghs-secret"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "ghs-secret" not in str(container.calls)
    assert "GIT_TOKEN" not in os.environ


async def test_the_functions_have_the_store_a_volume_for_results_and_what_they_import(
    cloud: Cloud, deployed: ModuleType
) -> None:
    cloud.control.secrets["evolverpc"] = {"GEPA_STORE": "mongodb://db.example/evolverpc"}
    await deployed.app.deploy.aio(name="evolverpc-optimizer")
    functions = cloud.control.functions
    assert functions.keys() == {"optimize", "publish"}
    optimize = functions["optimize"]
    assert list(optimize.secret_ids) == ["st-evolverpc"]
    assert [(mount.volume_id, mount.mount_path) for mount in optimize.volume_mounts] == [("vo-evolverpc-runs", "/runs")]
    installed = cloud.control.images[optimize.image_id].dockerfile_commands
    assert any("evolverpc[client,modal,mongo]" in line for line in installed)


def test_files_are_passed_along_and_each_run_has_its_own_name(deployed: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "data" / "rows").mkdir(parents=True)
    (tmp_path / "data" / "rows" / "train.jsonl").write_bytes(b"{}")
    (tmp_path / "run.toml").write_bytes(b"seed = 1")
    words = ["--repo", "git@x.example:a/b", "--sandboxes", "20", "--data", str(tmp_path / "data")]
    words += ["--config", str(tmp_path / "run.toml"), "--name", "mine", "--trainset", "rows/train.jsonl"]
    name, arguments, files = deployed.planned(words)
    assert name.startswith("mine-")
    assert name != deployed.planned(words)[0]
    assert files == {"rows/train.jsonl": b"{}", "config.toml": b"seed = 1"}
    assert arguments == [
        *("--repo", "git@x.example:a/b", "--sandboxes", "20", "--trainset", "rows/train.jsonl"),
        *("--config", "config.toml"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["--repo", "."],
        ["--repo", "https://x.example/y", "--store=x.db"],
        ["--repo", "https://x/y", "--sandbox", "process"],
    ],
)
def test_arguments_that_modal_cannot_support_are_refused(deployed: ModuleType, words: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"Modal|README"):
        deployed.planned(words)


def test_requests_from_outside_reach_the_gateway_on_loopback(deployed: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        socket.create_server(("127.0.0.1", 0)) as gateway,
        deployed.relayed(port, gateway.getsockname()[1]),
        socket.create_connection(("127.0.0.1", port), timeout=10) as caller,
    ):
        caller.sendall(b"asked")
        caller.shutdown(socket.SHUT_WR)
        answering, _ = gateway.accept()
        with answering:
            assert answering.recv(100) == b"asked"
            assert answering.recv(100) == b""
            answering.sendall(b"answered")
        assert caller.recv(100) == b"answered"
        assert caller.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=10)


def test_an_optimizer_whose_machine_is_preempted_is_signalled_and_awaited(tmp_path: Path) -> None:
    script = "import signal, sys\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(0 if open('kept', 'w') else 1))\n"
    script += "open('up', 'w').close()\nsignal.pause()"
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('modal_app', {str(SOURCE)!r})\n"
        "module = sys.modules['modal_app'] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "from pathlib import Path\n"
        f"module.run_to_its_end([sys.executable, '-c', {script!r}], Path({str(tmp_path)!r}))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, start_new_session=True) as function:
        until((tmp_path / "up").exists)
        function.send_signal(signal.SIGINT)
        function.wait(15)
    assert (tmp_path / "kept").exists()
