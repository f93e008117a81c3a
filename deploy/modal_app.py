"""Runs the optimizer itself at Modal, its sandboxes beside it and its store in MongoDB; see README.md here."""

import argparse
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import modal

EXTRAS = "client,modal,mongo"
WHEEL = os.environ.get("EVOLVERPC_WHEEL")
"""A wheel of your own, built from a checkout, in place of the package on PyPI."""

SECRET = "evolverpc"  # noqa: S105  a name
"""The secret at Modal with the store and the model keys."""

GATEWAY_PORT, FORWARDED_PORT = 8765, 8766
RUNS = "/runs"
FILES = "/root/run"
TOKEN_FILE = "/root/git-token"  # noqa: S105  a path
LONGEST_S = 24 * 3600
"""As long as Modal lets a function run; a run that needs longer is resumed in the next one."""

PAUSED = 3
"""The exit status of `evolverpc` for a run that can be resumed."""

LEASE_S = 15.0
"""After which a run whose process was killed may be taken over; a little more than its `lease_s`."""

GRACE_S = 25.0
"""What Modal leaves a function that it takes the machine from; the optimizer keeps what is in flight, and ends."""


def _image() -> modal.Image:
    base = modal.Image.debian_slim(python_version="3.12").apt_install("git", "ca-certificates")
    if WHEEL is None or not modal.is_local():
        return base.uv_pip_install(f"evolverpc[{EXTRAS}]")
    there = f"/root/{Path(WHEEL).name}"
    return (
        base.pip_install("uv")
        .add_local_file(WHEEL, there, copy=True)
        .run_commands(f"uv pip install --system '{there}[{EXTRAS}]'")
    )


app = modal.App("evolverpc-optimizer")
results = modal.Volume.from_name("evolverpc-runs", create_if_missing=True)


@app.function(
    image=_image(),
    secrets=[modal.Secret.from_name(SECRET, required_keys=["GEPA_STORE"])],
    volumes={RUNS: results},
    cpu=2.0,
    memory=4096,
    timeout=LONGEST_S,
    retries=modal.Retries(max_retries=10, initial_delay=30.0, backoff_coefficient=1.0),
    single_use_containers=True,
)
def optimize(name: str, arguments: list[str], files: dict[str, bytes]) -> int:
    """Run `start_or_resume` on a machine of Modal's and return its result."""
    return start_or_resume(name, arguments, files)


@app.function(image=_image(), secrets=[modal.Secret.from_name(SECRET)], timeout=3600)
def publish(repo: str, arguments: list[str]) -> None:
    """Build the image that the program's sandboxes are made of, and publish it."""
    build = ["evolverpc", "sandboxes", "--publish", "--sandbox", "modal", "--repo", repo]
    subprocess.run([*build, *git_token(), *arguments], check=True)  # noqa: S603  our own command


@app.local_entrypoint()
def main(*words: str) -> None:
    """`modal run --detach deploy/modal_app.py::main --repo URL ...`: those of `evolverpc optimize`, and `--data`."""
    name, arguments, files = planned(words)
    print(f"run {name}; its store is GEPA_STORE of the secret {SECRET!r}, its results are in {RUNS}/{name}")
    status = optimize.remote(name, arguments, files)
    if status != 0:
        raise SystemExit(status)


@app.local_entrypoint()
def prepare(*words: str) -> None:
    """`modal run deploy/modal_app.py::prepare --repo URL`: to be done once for each environment of a program."""
    given, rest = _parser().parse_known_args(words)
    publish.remote(_remote(given.repo), rest)


def start_or_resume(name: str, arguments: Sequence[str], files: Mapping[str, bytes]) -> int:
    """Run `evolverpc optimize`, or resume the run of this name if an earlier try has started it.

    Return its exit status. Raise if the run has paused, which Modal tries again.
    """
    folder = Path(FILES)
    for file, content in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    folder.mkdir(parents=True, exist_ok=True)
    begun = _stored(name)
    if begun is not None:
        _take_over(begun)
    with relayed(FORWARDED_PORT, GATEWAY_PORT), modal.forward(FORWARDED_PORT) as tunnel:
        argv = command(name, arguments, None if begun is None else begun["id"], tunnel.url)
        status = run_to_its_end([*argv, *git_token()], folder)
    results.commit()
    if status == PAUSED:
        raise RuntimeError(f"run {name} has paused: `evolverpc resume {name}`, or the next try here, resumes it")
    return status


def planned(words: Sequence[str]) -> tuple[str, list[str], dict[str, bytes]]:
    """Return the run's unique name, its flags, and the files of this machine that it needs, by relative path.

    Raises:
        SystemExit: the flags contradict where it runs.
    """
    given, rest = _parser().parse_known_args(words)
    for flag in ("--sandbox", "--store", "--output", "--gateway"):
        if any(word == flag or word.startswith(f"{flag}=") for word in rest):
            raise SystemExit(f"{flag} is set by this deployment: see deploy/README.md")
    files: dict[str, bytes] = {}
    if given.data is not None:
        data = Path(given.data)
        files = {str(file.relative_to(data)): file.read_bytes() for file in data.rglob("*") if file.is_file()}
    arguments = ["--repo", _remote(given.repo), *rest]
    if given.config is not None:
        files["config.toml"] = Path(given.config).read_bytes()
        arguments += ["--config", "config.toml"]
    return f"{given.name}-{secrets.token_hex(4)}", arguments, files


def command(name: str, arguments: Sequence[str], run: str | None, gateway_url: str) -> list[str]:
    """Return the arguments of the command; `run`: the id of the run that was started under this name."""
    where = ["--sandbox", "modal", "--gateway", f"{GATEWAY_PORT}={gateway_url}"]
    if run is None:
        return ["evolverpc", "optimize", *arguments, "--name", name, "--output", f"{RUNS}/{name}", *where]
    return ["evolverpc", "resume", run, *where]


def git_token() -> list[str]:
    """Return the flag for the token that the secret has in GIT_TOKEN, which is in a file of its own from now on."""
    file = Path(TOKEN_FILE)
    if token := os.environ.pop("GIT_TOKEN", None):
        file.touch(mode=0o600)
        file.write_text(token)
    return ["--git-token-file", TOKEN_FILE] if file.exists() else []


def run_to_its_end(argv: Sequence[str], folder: Path) -> int:
    """Return the command's exit status; if Modal takes the machine away, end the command first."""
    process = subprocess.Popen(argv, cwd=folder)  # noqa: S603  our own command
    try:
        return process.wait()
    except KeyboardInterrupt:  # the signal by which Modal ends this container
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        raise
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def relayed(port: int, to_port: int) -> Iterator[None]:
    """Forward connections from `port` of this container to `to_port` of its loopback, where the gateway listens."""
    with socket.create_server(("0.0.0.0", port), backlog=128) as listening:  # noqa: S104  Modal's forwarder comes from outside
        threading.Thread(target=_accept, args=(listening, to_port), daemon=True).start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)  # what else would wake the thread


def _accept(listening: socket.socket, to_port: int) -> None:
    while True:
        try:
            caller, _ = listening.accept()
        except OSError:
            return  # it was closed
        try:
            gateway = socket.create_connection(("127.0.0.1", to_port))
        except OSError:
            caller.close()
            continue
        threading.Thread(target=_both_ways, args=(caller, gateway), daemon=True).start()


def _both_ways(caller: socket.socket, gateway: socket.socket) -> None:
    with caller, gateway:
        back = threading.Thread(target=_copy, args=(gateway, caller), daemon=True)
        back.start()
        _copy(caller, gateway)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(2**16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _stored(name: str) -> dict[str, str] | None:
    """Return the run of this name in the store, as `evolverpc runs --json` prints it."""
    listed = subprocess.run(["evolverpc", "runs", "--json"], check=True, capture_output=True, text=True)  # noqa: S607
    found = [json.loads(line) for line in listed.stdout.splitlines()]
    return next((run for run in found if run["name"] == name), None)


def _take_over(run: dict[str, str]) -> None:
    """Its process is gone, as only one is tried at a time: let its lease end, and end its sandboxes."""
    if run["status"] == "running":
        time.sleep(LEASE_S)
    sweep = ["evolverpc", "sandboxes", "--sandbox", "modal", "--run", run["id"], "--sweep"]
    subprocess.run(sweep, check=True)  # noqa: S603  our own command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--repo", required=True)
    parser.add_argument("--name", default="run")
    parser.add_argument("--data")
    parser.add_argument("--config", "-c")
    return parser


def _remote(repo: str) -> str:
    head, colon, _ = repo.partition(":")
    if "://" not in repo and not (colon and "@" in head):
        raise SystemExit(f"{repo} is a folder of this machine, which Modal cannot see: push it, and give its URL")
    return repo
