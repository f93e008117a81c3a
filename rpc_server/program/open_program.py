"""Open a program from settings: its digest, its launcher and its pool."""

import asyncio
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evolverpc_common.files import no_such_file
from evolverpc_common.redaction import SECRET_NAMES
from protocol import Candidate, ProgramInfo
from protocol.errors import ProgramFailed
from rpc_server import wire
from rpc_server.jail.jail import Jail
from rpc_server.program.launcher import CommandLauncher, Launcher, PythonLauncher, find_interpreter, program_environment
from rpc_server.program.process_pool import Pool
from rpc_server.program.program import Program
from rpc_server.program.scheduler import start_process
from rpc_server.settings import Settings, concerns

_FILE_DIGEST = 16
"""Characters of a file's digest in `ProgramInfo.files`."""


def digest_settings(settings: Settings, seed: Candidate | None) -> dict[str, Any]:
    """Return the settings that a program's digest covers, as JSON, with paths relative to `root`.

    `seed`: the parsed setting `seed_candidate`. Speed, time limits, access, logging and the values of secrets are left
    out, as they do not change scores.
    """
    root = settings.root.absolute()
    dspy = {"metric": settings.metric, "inputs": settings.inputs}
    dspy |= settings.dspy.model_dump(exclude={"warn_on_score_mismatch"})
    return {
        "program": None if settings.program is None else _seen_from(root, settings.program),
        "adapter": settings.adapter,
        "adapter_args": settings.adapter_args,
        "command": None if settings.command is None else list(settings.command),
        "seed_candidate": seed,
        "datasets": {split: _seen_from(root, path) for split, path in settings.datasets.items()},
        "env": {name: None if SECRET_NAMES.search(name) else value for name, value in (settings.env or {}).items()},
        "trust_results": settings.trust_results,
        "model_hosts": list(settings.model_hosts),
        # A saved program counts by content, read in its process.
        **({"dspy": dspy} if settings.is_a == "dspy" else {}),
    }


def command_identity(settings: Settings, stated: dict[str, Any]) -> dict[str, Any]:
    """Return `digest`, the SHA-256 over the settings and files that the command names, and `files`, those files' own.

    Empty without a command.
    """
    if settings.command is None:
        return {}
    digest, files = hashlib.sha256(wire.canonical(stated)), {}
    for word in settings.command:
        for name in dict.fromkeys((word, word.partition("=")[2])):  # `--config=FILE` names one too
            path = os.path.join(settings.root, name)  # noqa: PTH118  # a word may be too long for a `Path` to ask about
            if name and os.path.isfile(path) and os.access(path, os.R_OK):  # noqa: PTH113  # as above
                with open(path, "rb") as file:  # noqa: PTH123  # as above
                    content = hashlib.file_digest(file, "sha256")
                digest.update(content.digest())
                files[name] = content.hexdigest()[:_FILE_DIGEST]
    return {"digest": digest.hexdigest(), "files": files}


def _seen_from(root: Path, path: Path | str) -> str:
    """Return a path relative to the project's folder if it lies in there."""
    absolute = Path(os.path.normpath(root / path))
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else str(path)


_WORKER_SETTINGS = (
    *("program", "adapter", "adapter_args", "name", "version", "concurrency"),
    *("trust_results", "model_hosts", "example_timeout_s", "max_trace_bytes", "metric", "inputs"),
)
"""Settings that the worker gets as they are."""


async def open_program(
    settings: Settings,
    *,
    digest_of: Settings | None = None,
    jail: Jail | None = None,
    make_launcher: Callable[[dict[str, Any]], Launcher] | None = None,
) -> Program:
    """Start the program and read its description. The caller closes it.

    `digest_of`: the settings that its digest covers, if it runs with others (paths of a worktree). `jail`: the jail of
    its processes. `make_launcher`: what starts it in place of processes, given the configuration of a worker.

    Raises:
        ProgramFailed: it cannot start; details `stage`, `message`, `log_tail`, `traceback`, and for Python programs
            `interpreter`, null if unknown.
    """
    try:
        stated = digest_settings(digest_of or settings, _seed_candidate(settings))
        config = _worker_config(settings, stated, jail)
        launcher = _launcher(settings, config, jail) if make_launcher is None else make_launcher(config)
        try:
            first = await start_process(launcher, settings.start_timeout_s)
            try:
                described = first.discovery.program
                identity = {"digest": described.digest, "files": described.files}
                if described.digest is None:
                    identity |= await asyncio.to_thread(command_identity, settings, stated)
                info = _info(settings, described, identity)
                size = _size(settings, launcher, is_single="refs" in first.discovery.capabilities)
                at_rest = min(size, settings.workers or _cores())
                return Pool(launcher, first, info, settings, size=size, at_rest=at_rest)
            except BaseException:
                await first.process.end(grace_s=0)
                raise
        except BaseException:
            await launcher.close()
            raise
    except ProgramFailed as error:
        raise _with_all_details(error, settings, in_process=make_launcher is not None) from error.__cause__


def _launcher(settings: Settings, config: dict[str, Any], jail: Jail | None) -> Launcher:
    env, root = program_environment(settings), settings.root.absolute()
    if settings.command is not None:
        return CommandLauncher(settings.command, root=root, env=env, jail=jail)
    return PythonLauncher(find_interpreter(settings), config, root=root, env=env, jail=jail)


def _worker_config(settings: Settings, stated: dict[str, Any], jail: Jail | None) -> dict[str, Any]:
    """Return the configuration that `rpc_server/worker/program_loading.py` reads."""
    return {
        **{name: getattr(settings, name) for name in _WORKER_SETTINGS},
        **settings.dspy.model_dump(),
        "root": str(settings.root.absolute()),
        "kind": settings.is_a,
        "seed_candidate": stated["seed_candidate"],
        "saved_program": None if settings.saved_program_json_path is None else str(settings.saved_program_json_path),
        "threads": _threads(settings),
        "prefers_forks": settings.workers is None or "concurrency" not in settings.model_fields_set,
        "digested": stated,
        "jailed": jail is not None,
    }


def _threads(settings: Settings) -> int:
    """Return how many examples a process that runs several at once takes."""
    if settings.is_a == "adapter" and "concurrency" not in settings.model_fields_set:
        return 1  # few adapters are safe in threads
    processes = settings.workers or _cores() if concerns("workers", settings.is_a) else 1
    return math.ceil(settings.concurrency / processes)


def _seed_candidate(settings: Settings) -> dict[str, str] | None:
    if not isinstance(settings.seed_candidate, Path):
        return settings.seed_candidate
    path = settings.root / settings.seed_candidate
    try:
        seed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProgramFailed(no_such_file(path), stage="seed_candidate") from None
    except (OSError, ValueError) as error:
        raise ProgramFailed(f"cannot read {path}: {error}", stage="seed_candidate") from None
    if not isinstance(seed, dict) or not all(isinstance(text, str) for text in seed.values()):
        raise ProgramFailed(f"{path} is not a JSON object of texts", stage="seed_candidate")
    return seed


def _size(settings: Settings, launcher: Launcher, *, is_single: bool) -> int:
    """Return one process for async functions, which share it, one for each example if it is a fork, else one a core.

    `is_single`: the program keeps what its refs name in its one process, for which some settings have no effect.
    """
    if is_single:
        if settings.workers not in (None, 1):
            raise ProgramFailed("`workers`: the program offers `refs`, so it has one process", stage="settings")
        if settings.is_a == "command" and "max_trace_bytes" in settings.model_fields_set:
            message = "`max_trace_bytes`: the program offers `refs`, so it keeps them itself"
            raise ProgramFailed(message, stage="settings")
        return 1
    if settings.workers is not None:
        return settings.workers
    if isinstance(launcher, PythonLauncher) and launcher.mode == "async":
        return 1
    is_forked = isinstance(launcher, PythonLauncher) and launcher.forks and launcher.mode == "sync"
    return settings.concurrency if is_forked else min(_cores(), settings.concurrency)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _info(settings: Settings, described: ProgramInfo, identity: dict[str, Any]) -> ProgramInfo:
    """Return the program's own description, overridden by the settings, with its identity."""
    seed = _seed_candidate(settings) or described.seed_candidate
    if seed and not described.seed_candidate:
        raise ProgramFailed("the program only scores: it has no components", stage="seed_candidate")
    if seed.keys() != described.seed_candidate.keys():
        names = ", ".join(described.seed_candidate)
        raise ProgramFailed(f"the setting's components are not the program's: {names}", stage="seed_candidate")
    return described.model_copy(
        update={
            "name": settings.name or described.name,
            "version": settings.version or described.version,
            **identity,
            "seed_candidate": seed,
        }
    )


def _with_all_details(error: ProgramFailed, settings: Settings, *, in_process: bool) -> ProgramFailed:
    for name in ("log_tail", "traceback"):
        error.details.setdefault(name, None)
    if settings.command is None and not in_process:
        error.details.setdefault("interpreter", str(find_interpreter(settings)))
    error.details["message"] = error.message
    return error


def changed_files(digests: Mapping[str, str], folders: Sequence[Path]) -> list[str]:
    """Return those of the files that have another content now; a file that cannot be read is left out.

    `digests`: as in `ProgramInfo.files`. `folders`: a path is relative to the first that has it.
    """
    return [name for name, digest in digests.items() if _is_changed(name, digest, folders)]


def _is_changed(name: str, digest: str, folders: Sequence[Path]) -> bool:
    for folder in folders:
        try:
            content = (folder / name).read_bytes()
        except OSError:
            continue
        return not hashlib.sha256(content).hexdigest().startswith(digest)
    return False
