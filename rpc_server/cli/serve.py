"""One run of the server: read the flags, bind, open the program, announce it, answer, and end as the signals ask."""

import asyncio
import logging
import os
import shlex
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from evolverpc_common.open_connections import raise_descriptor_limit
from evolverpc_common.row_files import RowFileError, read_rows
from evolverpc_common.settings.sources import SettingsError
from evolverpc_common.shielded import run_shielded
from protocol.errors import ProgramFailed
from rpc_server.cli import conformance_program
from rpc_server.cli.announce import Announcer, printed_output
from rpc_server.cli.listen_endpoint import Token, apply_listen_address, bound, token_for, url_of
from rpc_server.cli.serve_command import CANNOT_START
from rpc_server.http import SERVICE, create_app, listening
from rpc_server.jail.jail import JailFactory, check_jail, create_jails, protect_memory
from rpc_server.methods.dataset_rows import Datasets, Row, check_carried, program_rows, untyped_splits
from rpc_server.program.launcher import program_environment
from rpc_server.program.open_program import open_program
from rpc_server.program.program import Program
from rpc_server.program.supervised_command import run_command
from rpc_server.settings import Settings, load_settings

if TYPE_CHECKING:
    from rpc_server.mutations.transaction import CodeMutations

INTERRUPTED = 130

_DESCRIPTORS = 4096

NO_JAIL = (
    "warning: coding agents and the code that they write run with all rights of your user: they "
    "can change .git/hooks, .git/config, your working tree and your home folder, and read every file that "
    "you can read. Use a sandbox for code that you do not trust. There is no jail: {why}"
)


async def serve(
    settings: Settings,
    announce: Announcer,
    rows: Mapping[str, Sequence[Row]] | None = None,
    inherited: socket.socket | None = None,
) -> int:
    """Serve until a signal; return the exit status.

    SIGTERM drains, SIGINT ends promptly, a second SIGINT ends at once. `rows` replace `settings.datasets`; without
    either, the program's own rows are served. `inherited`: a listening socket.
    """
    loop, serving, status = asyncio.get_running_loop(), asyncio.current_task(), 0
    assert serving is not None, "this runs in a task"  # noqa: S101

    def interrupted() -> None:
        nonlocal status
        status = INTERRUPTED
        loop.add_signal_handler(signal.SIGINT, os._exit, INTERRUPTED)  # program processes end when their input closes
        serving.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        with token_for(settings, os.environ) as token, bound(settings, inherited) as sock:
            if token.excluded_by is not None:
                announce.note(
                    f"the new token file {token.file} is in a git repository: a line in {token.excluded_by} makes "
                    "git ignore it, so that it is not committed"
                )
            given = (
                rows
                if rows is not None
                else {split: read_rows(settings.root / path) for split, path in settings.datasets.items()}
            )
            program, mutations = await _open(settings, announce, token)
            try:
                check_carried(given, program)
                held = given or await _rows_of(program, announce)
                untyped = untyped_splits(settings.datasets) if rows is None else ()
                datasets = Datasets(held, share_rows=settings.share_rows, untyped=untyped)
                await _answer_requests(program, mutations, settings, datasets, token, sock, announce)
            finally:
                await program.close()
    except asyncio.CancelledError:
        return status
    except (SettingsError, RowFileError) as error:
        announce.failed(str(error))
        return CANNOT_START
    except ProgramFailed as error:
        announce.program_failed(error)
        return CANNOT_START
    return 0


async def _rows_of(program: Program, announce: Announcer) -> Mapping[str, Sequence[Row]]:
    held = await program_rows(program)
    for split in held:
        if held[split] is None:
            announce.note(
                f"split {split!r} is left out: the program lists it without its rows; "
                "let the program share them, or give them as `datasets`"
            )
    return {split: rows for split, rows in held.items() if rows is not None}


_Opened = tuple[Program, "CodeMutations | None"]
"""The running program, and the mutations of its code."""


async def _open(settings: Settings, announce: Announcer, token: Token) -> _Opened:
    jails = await _jails(settings, announce, token)
    if jails is None:
        return await _open_in(None, settings, announce)
    protect_memory()
    try:
        return await _open_in(jails, settings, announce)
    except ProgramFailed:
        await check_jail(jails)  # the jail may be the cause; a trial costs as much as a start, so it runs only now
        raise


async def _jails(settings: Settings, announce: Announcer, token: Token) -> JailFactory | None:
    """Return the jails that the settings request; by default jails if code evolves and bubblewrap works.

    Raises:
        SettingsError: they request jails, and there is no bubblewrap; or `root` is too wide for one.
    """
    if settings.jail is False or (settings.jail is None and not settings.has_trees):
        if settings.has_trees:
            announce.note(NO_JAIL.format(why="`jail` is off"))
        return None
    _check_root(settings.root)
    try:
        jails = create_jails(
            secrets=() if token.file is None else (token.file,), readable=(settings.root, _top(settings.root))
        )
        if settings.jail is None:
            await check_jail(jails)
            announce.note(
                "programs, builds, checks and agents run in a jail that can write only to their own copy of "
                "the files and to a /tmp of their own; --no-jail lifts that"
            )
    except SettingsError as error:
        if settings.jail:
            raise
        announce.note(NO_JAIL.format(why=error))
        return None
    return jails


def _check_root(root: Path) -> None:
    """Refuse a `root` around the repository: it is writable in a jail."""
    started, root = Path.cwd().resolve(), root.resolve()
    top = _top(started)
    if started.is_relative_to(root) and not root.is_relative_to(top):
        raise SettingsError(
            f"`root` is {root}, around {top}: in a jail it must be the repository or within it; or turn `jail` off"
        )


def _top(folder: Path) -> Path:
    """Return the top of the repository that holds the folder, else the folder."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


async def _open_in(jails: JailFactory | None, settings: Settings, announce: Announcer) -> _Opened:
    if not settings.has_trees:
        jail = None if jails is None else jails.jail(settings.root, read_only=(settings.root / ".git",))
        if settings.build_command is not None:
            # A build of a workspace also makes what other packages of the repository do not commit.
            top = _top(settings.root.resolve())
            build_jail = None if jails is None else jails.jail(top, read_only=(top / ".git", settings.root / ".git"))
            announce.note(f"running {shlex.join(settings.build_command)} (`build_command`)")
            await run_command(
                settings.build_command,
                folder=settings.root,
                environment=program_environment(settings),
                timeout_s=settings.build_timeout_s,
                stage="build",
                jail=build_jail,
            )
        return await open_program(settings, jail=jail), None
    from rpc_server.worktrees.worktree_program import open_worktrees  # with what most servers do without

    program, excluded = await open_worktrees(settings, jails)
    top = program.instances.repository.top
    announce.worktrees_opened(top, excluded)
    if not settings.allow_mutations:
        return program, None
    from rpc_server.mutations.agents import CLAUDE_CREDENTIALS
    from rpc_server.mutations.transaction import check_prerequisites, open_mutations

    try:
        mutations = await open_mutations(program.instances)
        if settings.check_command is not None:
            announce.note("running `check_command` on the code as it is")
        await check_prerequisites(program.instances, excluded.commit)
    except BaseException:
        await program.close()
        raise
    pushed = "" if settings.push is None else f", pushed to {settings.push}"
    announce.note(f"clients may have {mutations.agent_label} change the code, on branches evolve/ of {top}{pushed}")
    announce.changeable(*await run_shielded(mutations.fixed_files, excluded.commit))
    if settings.agent_command is None and not any(
        program_environment(settings).get(name) for name in CLAUDE_CREDENTIALS
    ):
        first, *others = CLAUDE_CREDENTIALS
        announce.note(
            f"warning: Claude has no {first} (nor {', '.join(others)}) in the server's environment, "
            "so change requests will fail"
        )
    return program, mutations


async def _answer_requests(
    program: Program,
    mutations: "CodeMutations | None",
    settings: Settings,
    datasets: Datasets,
    token: Token,
    sock: socket.socket,
    announce: Announcer,
) -> None:
    app = create_app(program, settings, token=token.value, datasets=datasets, mutations=mutations)
    service = app[SERVICE]
    if settings.is_a == "program" and program.info.components and "scoring" not in program.capabilities:
        announce.note(
            "warning: the program has no `score(example, output)`: write this function, or name a server "
            "that scores by `evolverpc optimize --score-with URL`"
        )
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    async with listening(app, sock):
        announce.ready(
            settings,
            program.info,
            token,
            url=url_of(settings, sock),
            instance_id=service.instance_id,
            splits=datasets.infos.keys(),
        )
        await terminated.wait()
        announce.draining()
        await service.drain()


def start(config: Path | None, flags: Mapping[str, Any], *, json_lines: bool, conformance: bool) -> int:
    """Serve with these flags, and settings of environment and file; return the exit status. Raises `SettingsError`."""
    logging.basicConfig(level=logging.WARNING, format="evolverpc serve: %(levelname)s: %(message)s")
    raise_descriptor_limit(_DESCRIPTORS)
    rows = None
    if conformance and not flags.keys() & {"program", "command"}:
        file = Path(conformance_program.__file__).resolve()
        flags = {"program": str(file), "name": "conformance", "root": str(file.parent), **flags}
        rows = conformance_program.DATASETS
    loaded = load_settings(config, flags, find=not conformance)
    if conformance:
        limits = conformance_program.LIMITS
        loaded = loaded.model_copy(update={name: limits[name] for name in limits.keys() - loaded.model_fields_set})
    settings, inherited = apply_listen_address(loaded, os.environ, flags)
    with printed_output() if settings.logs else nullcontext():
        return uvloop.run(serve(settings, Announcer(json_lines=json_lines), rows, inherited))
