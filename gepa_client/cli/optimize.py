"""`gepa-client optimize`: settings in, a run in its own process, its story on the terminal, results in a folder."""

import inspect
import json
import signal
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Annotated, Any, Self

import typer
from rich.console import Console

from gepa_client import report
from gepa_client.address import find_token, rpc_url
from gepa_client.causes import summary
from gepa_client.cli import flags
from gepa_client.cli import summary as last_words
from gepa_client.cli.ahead import look_ahead
from gepa_client.cli.check import look
from gepa_client.cli.console import fail, make
from gepa_client.cli.display import Display, JsonDisplay, LiveDisplay, PlainDisplay
from gepa_client.cli.summary import Ended
from gepa_client.errors import ClientError
from gepa_client.report.record import RunRecord
from gepa_client.run import folder as files
from gepa_client.run.config import RunConfig
from gepa_client.run.events import Finished
from gepa_client.run.settings import SettingsError, load
from gepa_client.run.supervise import OptimizerProcess
from protocol.errors import RpcError

COMMAND = flags.SettingsCommand
TICK_S = 0.125
USAGE = 2
STOPPED = 130


def optimize(url: str | None, config: Path | None, json_events: bool, **given: Any) -> None:
    """Improve the texts of the program behind a server; write its best candidate and a report.

    Ends with 0 when the run finished, 1 when it failed, 2 for a fault in the settings, 3 when the infrastructure
    failed and the run paused, 130 when it was stopped by hand. What was found is kept in every case.
    """
    console = make()
    try:
        settings = load(config, {"url": url, **given})
        rpc_url(settings.url, allow_insecure=settings.allow_insecure)
        token = find_token(None, settings.token_file)
        look_ahead(settings, output=settings.output)
    except (SettingsError, ClientError, RpcError) as error:
        fail(str(error) if isinstance(error, SettingsError) else summary(error))
        raise typer.Exit(USAGE) from error
    except KeyboardInterrupt:
        fail("stopped by hand")
        raise typer.Exit(STOPPED) from None
    typed = flags.Typed(url, config, given)
    if not settings.no_check:
        status = look(settings, typed, json_output=json_events, brief=True)
        if status != 0:
            raise typer.Exit(status)
    try:
        started = time.strftime("%Y%m%d-%H%M%S")
        output = files.create(settings.output) if settings.output else files.create_default(settings.name, started)
    except OSError as error:
        fail(f"no folder for the results: {error}")
        raise typer.Exit(USAGE) from error
    raise typer.Exit(_run(settings, typed, output, token, json_events, console))


def _run(
    settings: RunConfig, typed: flags.Typed, output: Path, token: str | None, json_events: bool, console: Console
) -> int:
    display: Display = (
        JsonDisplay() if json_events else LiveDisplay(console) if console.is_terminal else PlainDisplay(console)
    )
    record = RunRecord()
    began = time.monotonic()
    with OptimizerProcess(settings, output, token) as process:
        with _StopOnSignals(process, display) as stops, display:
            try:
                while True:
                    stops.attend()
                    event = process.next(TICK_S)
                    record.seconds = time.monotonic() - began
                    if event is None:
                        display.tick(record)
                    else:
                        record.apply(event)
                        display.event(event, record)
            except EOFError:
                pass
        status = process.end()
        finished = record.finished
        if finished is None:
            finished = _died(status, process.log_tail(), record)
            record.apply(finished)
            display.event(finished, record)
    written = report.write(output, record) if record.started is not None else []
    ended = Ended(settings, typed, output, record, finished, [*finished.files, *written], time.monotonic() - began)
    if json_events:
        print(json.dumps(last_words.as_json(ended), ensure_ascii=False), flush=True)
    else:
        last_words.show(ended, console)
    return last_words.EXIT[finished.status]


def _died(status: int, tail: str, record: RunRecord) -> Finished:
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    return Finished(
        seconds=record.seconds,
        status="failed",
        reason=f"the optimizer's process {how} before its run was over",
        details=f"the end of its log:\n{tail}" if tail else None,
        metric_calls=record.metric_calls,
        files=[files.BEST_CANDIDATE] if record.candidates else [],
    )


class _StopOnSignals:
    """Turns Ctrl-C and SIGTERM into a stop that keeps everything; the second one ends the process at once.

    The handler only counts: `attend`, called from the loop, acts, so that nothing is printed in the middle of a print.
    """

    def __init__(self, process: OptimizerProcess, display: Display) -> None:
        self._process = process
        self._display = display
        self._received = 0
        self._attended = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def attend(self) -> None:
        """Do what the signals received since the last time ask for."""
        while self._attended < self._received:
            self._attended += 1
            if self._attended == 1:
                self._display.note("stopping; everything found so far is kept (once more to stop at once)")
                self._process.stop()
            else:
                self._process.kill()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._received += 1


def _with_flags() -> None:
    """Give the command its signature: typer reads the flags from it."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [
        inspect.Parameter(
            "url",
            keyword,
            default=None,
            annotation=Annotated[str | None, typer.Argument(help="The server; may be in the configuration file.")],
        ),
        inspect.Parameter(
            "config",
            keyword,
            default=None,
            annotation=Annotated[
                Path | None,
                typer.Option("--config", "-c", help="Settings as TOML: every flag below, with underscores."),
            ],
        ),
        inspect.Parameter(
            "json_events",
            keyword,
            default=False,
            annotation=Annotated[bool, typer.Option("--json", help="Print events as JSON lines, a summary last.")],
        ),
    ]
    signature = inspect.Signature([*own, *flags.parameters(flags.setting_names())])
    optimize.__signature__ = signature  # type: ignore[attr-defined]


_with_flags()
