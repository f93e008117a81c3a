"""`evolverpc mutate URL "CHANGE REQUEST"`: one manual mutation: its diff, and some rows before and after."""

import asyncio
import base64
import inspect
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from evolverpc_common.display_text import command, shell_line
from evolverpc_common.git import GitError
from evolverpc_common.settings.settings_command import settings_command, with_flags
from evolverpc_common.settings.sources import SettingsError
from gepa_client.cli.arguments import AllowInsecure, AsJson, TokenFile, read_object, read_text
from gepa_client.cli.sandbox_start import sandboxed, show_findings
from gepa_client.errors import ClientError, RowsError, details, summary
from gepa_client.evolution.candidate_names import BY_HAND, code_label, short_commit_name
from gepa_client.evolution.checkout import LocalCheckout
from gepa_client.evolution.manual_mutation import ManualMutation
from gepa_client.gepa.rows import EXACT_VALUES, AnyRow
from gepa_client.journal.answer_entries import Rejection
from gepa_client.run.output_folder import write_json
from gepa_client.run.splits import ListServerRows, rows_of
from gepa_client.settings.loading import load
from gepa_client.settings.run_config import REPLACED, SETTINGS, RunConfig
from gepa_client.settings.run_settings import SandboxSettings, is_remote
from gepa_client.settings.shell_arguments import GivenArguments
from gepa_client.transport.address import Address
from gepa_client.transport.responses import validated
from gepa_client.views.console import (
    PAUSED,
    STOPPED,
    USAGE,
    echo,
    echo_next,
    fail,
    make_console,
    print_json,
    refuse,
    safe,
    safe_line,
)
from gepa_client.views.mutation_view import mutation_progress, show_made, show_rejection, show_rows
from protocol import ApplyMutationResult, Candidate, DiscoverResult, JsonValue
from protocol.code import CODE_COMPONENTS, GIT_BRANCH, added_to, commit_of
from protocol.errors import MutationRejected, RpcError

NOT_MADE = 1
"""Exit status if the server rejected the mutation or failed; nothing was changed."""

TRIED = 3
"""Rows that are run before and after by default."""

_OF_TEXTS = "a JSON object of texts"

TRAIN = "train"
"""The split that rows are taken from by default, if the server has it."""


@dataclass
class _Mutation:
    """The parsed arguments, and what was made of them. `candidate`: None for the server's seed.

    `output`: the file for the new candidate. `quiet`: print nothing before the JSON object. `repo`: the program's
    repository if the server runs in a sandbox, from which the branch is brought home.
    """

    mutation: dict[str, JsonValue]
    candidate: Candidate | None
    examples: str | None
    limit: int
    timeout_s: float
    output: Path | None
    console: Console
    quiet: bool
    repo: str | None = None
    can_be_cancelled: bool = False
    made: ApplyMutationResult | None = None
    home: Path | None = None
    bundle: Path | None = None

    @property
    def kind(self) -> str:
        """The kind of the mutation in the contract."""
        return str(self.mutation["kind"])

    def take(self, made: ApplyMutationResult) -> None:
        """Save and print the mutation as soon as it was made."""
        self.made = made
        if self.output is not None:
            _write_candidate(self.output, made.candidate)
        if self.repo is not None:
            self._bring_home(made, self.repo)
        if not self.quiet:
            show_made(self.console, made, self.kind)

    def _bring_home(self, made: ApplyMutationResult, repo: str) -> None:
        """Make the branch in the program's repository if that is on this machine, else write its bundle to a file."""
        if made.bundle is None or made.branch is None:
            return
        bundle = base64.b64decode(made.bundle)
        reason = "the repository is not on this machine"
        if not is_remote(repo):
            home = Path(repo).expanduser()
            try:
                LocalCheckout(home).make_branch(made.branch, made.commit, [bundle])
            except GitError as error:
                reason = str(error)
            else:
                self.home = home
                return
        self.bundle = Path(f"{made.branch.replace('/', '-')}.bundle")
        try:
            self.bundle.write_bytes(bundle)
        except OSError as error:
            fail(f"{self.bundle} cannot be written: {error.strerror or error}; the change is lost with its sandbox")
            raise typer.Exit(USAGE) from error
        if not self.quiet:
            echo(self.console, f"[yellow]the branch is in {safe(str(self.bundle))}:[/] {safe(reason)}")


def _mutate(
    url: Annotated[str | None, typer.Argument(metavar="[URL]", help="The server; none with --repo.")] = None,
    request: Annotated[str | None, typer.Argument(metavar="[CHANGE]", help="The change, in plain words.")] = None,
    location: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where the agent should look first, as FILE or FILE:LINE.")
    ] = None,
    patch: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A unified diff to apply, in place of a change request.")
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Texts to write into the code, as a JSON object; a candidate's file will do, and names its code.",
        ),
    ] = None,
    merge: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Another candidate's file, whose code is to be joined.")
    ] = None,
    candidate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The candidate to change, as JSON (default the server's seed).")
    ] = None,
    examples: Annotated[
        str | None,
        typer.Option(metavar="FILE|SPLIT", help="Rows to run before and after (default the server's split `train`)."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many of them.")] = TRIED,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where the new candidate is written, as JSON.")
    ] = None,
    token_file: TokenFile = None,
    allow_insecure: AllowInsecure = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that the mutation may take.")] = 3600.0,
    as_json: AsJson = False,
    **sandbox: Any,
) -> None:
    """Change a program's code once: by an agent, a patch, texts or a merge. Prints the diff and its effect.

    With --repo the server is started in a sandbox, which ends afterwards, and the branch is made in that repository.

    Exits with 0 if the change was made, 1 if the server rejected it or failed, 2 for a usage or connection error, 3 if
    the connection was lost meanwhile or --timeout is over, 130 if you stopped it.
    """
    if output is not None and not output.resolve().parent.is_dir():
        refuse(f"--output {output}: there is no such folder")
    given = {name: value for name, value in sandbox.items() if value is not None}
    if sandbox.get("repo") is not None and request is None:
        url, request = None, url
    console = make_console()
    asked = _Mutation(
        mutation=mutation_of(request, location, patch, texts, merge),
        candidate=candidate_of(candidate, texts),
        examples=examples,
        limit=limit,
        timeout_s=timeout,
        output=output,
        console=console,
        quiet=as_json,
    )
    settings = _settings(url, given, asked.candidate, token_file, allow_insecure=allow_insecure)
    asked.repo = settings.repo if settings is not None else None
    typed = GivenArguments((), None, given)
    with _server(settings, url or "", token_file, allow_insecure=allow_insecure, quiet=as_json) as server:
        step = _made(asked, server)
    if as_json:
        print_json(_as_json(step) | _home_as_json(asked), indent=2)
        return
    if step.tried:
        show_rows(console, step)
        echo(console, "")
    if output is None:
        echo(console, "[dim]--output FILE keeps the new candidate for a next step[/]")
    if settings is not None:
        _show_home(asked, step.made, typed, output)
        return
    if output is not None:
        access = [] if token_file is None else ["--token-file", str(token_file)]
        access += ["--allow-insecure"] if allow_insecure else []
        echo_next(console, shell_line(["mutate", server.url, "ANOTHER CHANGE", "--candidate", str(output), *access]))
    if step.made.branch is not None:
        echo(console, "in the program's repository:")
        _show_branch(console, step.made, Path())


_OWN = {
    name: (parameter.annotation, parameter.default)
    for name, parameter in inspect.signature(_mutate).parameters.items()
    if parameter.kind is not inspect.Parameter.VAR_KEYWORD
}
_OF_SANDBOXES = {name: SETTINGS[name] for name in SandboxSettings.model_fields if name != "sandboxes"}

COMMAND = settings_command(_OF_SANDBOXES, REPLACED)
mutate = with_flags(_mutate, _OWN, _OF_SANDBOXES.values())


def _settings(
    url: str | None,
    given: Mapping[str, Any],
    candidate: Candidate | None,
    token_file: Path | None,
    *,
    allow_insecure: bool,
) -> RunConfig | None:
    """Return the settings of the sandbox; None if the server runs already."""
    if not given:
        if url is None:
            refuse("name the server, as in `evolverpc mutate http://127.0.0.1:8000 CHANGE`, or give --repo FOLDER")
        return None
    if "repo" in given and (url is not None or token_file is not None or allow_insecure):
        other = "a URL" if url is not None else "--token-file" if token_file is not None else "--allow-insecure"
        refuse(f"{other} and --repo are given: a running server, or a repository to start one from")
    try:
        commit = None if candidate is None else commit_of(candidate)
        start = {"ref": commit} if commit is not None and "ref" not in given else {}
        return load(None, {"url": None if url is None else [url], **start, **given}, must_end=False)
    except (SettingsError, ValueError) as error:
        refuse(str(error))


@contextmanager
def _server(
    settings: RunConfig | None, url: str, token_file: Path | None, *, allow_insecure: bool, quiet: bool
) -> Iterator[Address]:
    """Return the server's address, that of a sandbox which ends with the block if there are `settings` of one."""
    from gepa_client.run.resolved_settings import endpoints

    if settings is None:
        yield Address(url, token_file=token_file, allow_insecure=allow_insecure)
        return
    with sandboxed(settings, BY_HAND, shell_line(sys.argv[1:]), quiet=quiet, count=1) as sandboxes:
        yield endpoints(sandboxes.settings)[0]
        show_findings(sandboxes)


def _made(asked: _Mutation, server: Address) -> ManualMutation:
    """Make the mutation; print why it was not made, and exit, if it fails."""
    try:
        return asyncio.run(_mutate_once(server, asked))
    except MutationRejected as error:
        rejected = _reported(error)
        if asked.quiet:
            print_json({"event": "mutation", "made": False, **rejected.model_dump(mode="json")}, indent=2)
        else:
            show_rejection(asked.console, rejected, asked.kind)
        raise typer.Exit(NOT_MADE) from error
    except RpcError as error:
        _print_failure(error)
        raise typer.Exit(NOT_MADE) from error
    except ClientError as error:
        fail(f"{summary(error)}; whether the change was made is not known")
        raise typer.Exit(PAUSED) from error
    except TimeoutError as error:
        fail(f"the change was not made within {asked.timeout_s:g} s (--timeout); {_state_after_stop(asked)}")
        raise typer.Exit(PAUSED) from error
    except KeyboardInterrupt:
        fail(f"stopped by hand; {_state_after_stop(asked)}")
        raise typer.Exit(STOPPED) from None


def _reported(error: MutationRejected) -> Rejection:
    """Return what the server reported; end the command if that breaks the contract."""
    try:
        return validated(Rejection, {"reason": error.message, **error.details})
    except ClientError as wrong:
        refuse(summary(wrong), NOT_MADE)


def _show_home(asked: _Mutation, made: ApplyMutationResult, typed: GivenArguments, output: Path | None) -> None:
    """Print where the branch is, and the commands that follow."""
    if made.branch is None:
        return
    if asked.bundle is not None:
        fetch = shlex.join(["git", "fetch", str(asked.bundle.resolve()), f"{made.branch}:{made.branch}"])
        echo(asked.console, f"in a clone of the repository: {safe(fetch)}")
    if asked.home is None:
        return
    echo(asked.console, f"the branch is in {safe(str(asked.home.resolve()))}")
    _show_branch(asked.console, made, asked.home)
    following = shlex.join(["ANOTHER CHANGE", *(["--candidate", str(output)] if output is not None else [])])
    echo_next(asked.console, f"{typed.command('mutate', ref=made.branch)} {following}")


def _show_branch(console: Console, made: ApplyMutationResult, repo: Path) -> None:
    """Print the commands that show a change in this repository, and that list such branches there."""
    is_elsewhere = repo != Path()
    see = ["git", *(["-C", str(repo)] if is_elsewhere else []), "diff", f"{made.parent[:12]}..{made.branch}"]
    echo(console, f"see it: {safe(shlex.join(see))}")
    listing = command("branches", BY_HAND, *(["--repo", str(repo)] if is_elsewhere else []), store=None)
    echo(console, f"list or delete such branches: {safe(listing)}")


def _home_as_json(asked: _Mutation) -> dict[str, Any]:
    """Return where the branch of a change in a sandbox is."""
    if asked.repo is None:
        return {}
    home, bundle = (None if path is None else str(path.resolve()) for path in (asked.home, asked.bundle))
    return {"repository": home, "bundle_file": bundle}


async def _mutate_once(server: Address, asked: _Mutation) -> ManualMutation:
    # aiohttp comes with these, which `--help` does not need
    from gepa_client.evolution.manual_mutation import mutate_once
    from gepa_client.gepa.rows import list_server_rows
    from gepa_client.transport.rpc_client import RpcClient

    try:
        opened = RpcClient(server)
    except ClientError as error:
        refuse(summary(error))
    async with opened as client:
        try:
            discovery = await client.discover()
            candidate = _candidate_to_change(discovery, asked.candidate)
            rows = await _rows(discovery, asked, lambda split: list_server_rows(client, split))
        except (SettingsError, RowsError, ClientError, RpcError) as error:
            refuse(summary(error))
        asked.can_be_cancelled = client.offers("cancel") and client.offers("idempotency")
        if not asked.quiet:
            where = f"behind {client.url}" if asked.repo is None else f"in a sandbox, from {asked.repo}"
            who = f"{safe_line(discovery.program.name)} {safe_line(where)}"
            echo(asked.console, f"[bold]{safe_line(code_label(candidate) or '', 200)}[/] of {who}")
        with mutation_progress(asked.console, quiet=asked.quiet) as report:
            return await mutate_once(
                client,
                candidate,
                asked.mutation,
                rows,
                timeout_s=asked.timeout_s,
                report=report,
                on_made=asked.take,
            )


def _candidate_to_change(discovery: DiscoverResult, given: Candidate | None) -> Candidate:
    """Return the candidate to change. Raises SettingsError."""
    if "mutations" not in discovery.capabilities:
        raise SettingsError(
            f"the code of {discovery.program.name} cannot be changed there (no capability `mutations`): "
            "start its server with --allow-mutations, in a sandbox with --server-args=--allow-mutations"
        )
    candidate = discovery.program.seed_candidate if given is None else given
    try:
        commit = commit_of(candidate)
    except ValueError as error:
        raise SettingsError(f"the candidate cannot be used: {error}") from error
    if commit is None:
        raise SettingsError(f"the candidate names no code: it has no component `{GIT_BRANCH}`")
    return candidate


async def _rows(discovery: DiscoverResult, asked: _Mutation, list_server_rows: ListServerRows) -> list[AnyRow]:
    """Return up to `limit` rows, spread over all there are."""
    held = {split: info.size for split, info in discovery.datasets.items()}
    source = asked.examples if asked.examples is not None else (TRAIN if held.get(TRAIN) else None)
    if source is None or asked.limit == 0:
        return []
    exact = EXACT_VALUES in discovery.capabilities
    rows = await rows_of(source, "examples", held, list_server_rows, exact=exact) or []
    count = min(asked.limit, discovery.limits.max_batch_size, len(rows))
    return [rows[(number * len(rows)) // count] for number in range(count)]


def _write_candidate(path: Path, candidate: Candidate) -> None:
    try:
        write_json(path, candidate)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror or error}; the change was made, and this is the candidate:")
        print_json(candidate, indent=2)
        raise typer.Exit(USAGE) from error


def _print_failure(error: RpcError) -> None:
    fail(summary(error))
    if further := details(error):
        echo(make_console(stderr=True), f"[dim]{safe(further.rstrip())}[/]")
    if "commit" in error.details:
        fail("the server has no such commit: `evolverpc branches RUN --check-out` brings a run's into its repository")


def _state_after_stop(asked: _Mutation) -> str:
    """Return what a stop by hand left behind."""
    if asked.made is not None:
        return f"the change was made: {short_commit_name(asked.made.branch or '', asked.made.commit)}"
    if asked.can_be_cancelled:
        return "the server was asked to cancel the mutation, which leaves nothing behind"
    return "this server cannot cancel, so it may yet finish the mutation"


def _as_json(step: ManualMutation) -> dict[str, Any]:
    return {
        "event": "mutation",
        "made": True,
        **step.made.model_dump(mode="json", exclude={"bundle"}),
        "score_before": step.mean("before"),
        "score_after": step.mean("after"),
        "examples": [
            {"id": tried.row.id, "input": tried.row.data, "before": tried.before, "after": tried.after}
            for tried in step.tried
        ],
    }


def mutation_of(
    request: str | None, location: str | None, patch: Path | None, texts: Path | None, merge: Path | None
) -> dict[str, JsonValue]:
    """Return the one mutation that the arguments name."""
    ways = {"a change request": request, "--patch": patch, "--texts": texts, "--merge": merge}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        refuse(f"give one change: {', '.join(ways)}" + (f"; {' and '.join(given)} were given" if given else ""))
    if location is not None and request is None:
        refuse("--location is for a change request")
    if patch is not None:
        return {"kind": "patch", "diff": read_text(patch)}
    if texts is not None:
        return {"kind": "texts", "texts": _texts(_read_texts(texts), texts)}
    if merge is not None:
        other = _read_texts(merge)
        if GIT_BRANCH not in other:
            refuse(f"{merge} names no {GIT_BRANCH}: give a whole candidate (as --output writes)")
        return {"kind": "merge", "other": other}
    if not request:
        refuse("the change request is empty")
    asked = {"kind": "change_request", "request": request}
    return asked | ({"location": location} if location is not None else {})


def candidate_of(candidate: Path | None, texts: Path | None) -> Candidate | None:
    """Return the candidate of a file; texts that came with a commit belong to it."""
    if candidate is not None:
        return _read_texts(candidate)
    if texts is not None and GIT_BRANCH in (found := _read_texts(texts)):
        return found
    return None


def _texts(given: Candidate, path: Path) -> dict[str, JsonValue]:
    """Return the texts of a file, those that code mutations added included."""
    try:
        added = added_to(given)
    except ValueError as error:
        refuse(f"{path}: {error}")
    found: dict[str, JsonValue] = {**added, **{name: given[name] for name in given if name not in CODE_COMPONENTS}}
    if not found:
        refuse(f"{path}: holds no texts")
    return found


def _read_texts(path: Path) -> dict[str, str]:
    value = read_object(path, _OF_TEXTS)
    if not all(isinstance(text, str) for text in value.values()):
        refuse(f"{path}: not {_OF_TEXTS}")
    return value
