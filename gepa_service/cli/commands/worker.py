"""`gepa-service worker`: run the jobs of all tenants, by the variables `GEPA_SERVICE_...`."""

import logging
import os
import signal
import threading
from typing import Annotated

import typer

from gepa_service.cli.open_worker import opened_worker
from gepa_service.cli.operator_settings import OperatorError, read_operator_settings
from gepa_service.cli.printing import refuse


def worker(
    jobs: Annotated[int, typer.Option(min=1, max=1000, help="Jobs that run at the same time.")] = 2,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C, which hand the running ones to other workers; any number of workers.

    Settings are variables, the same as of `gepa-service api`: docs/guides/service.md.
    """
    logging.basicConfig(level=logging.WARNING, format="worker: %(levelname)s: %(message)s")
    stop = threading.Event()
    try:
        with opened_worker(read_operator_settings(os.environ), os.environ, jobs) as opened:

            def drain(_number: int, _frame: object) -> None:
                stop.set()
                opened.jobs.drain()

            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, drain)
            programs = threading.Thread(target=opened.programs.run, args=(stop,), name="programs")
            programs.start()
            try:
                opened.jobs.run()
            finally:
                stop.set()
                programs.join()
    except OperatorError as error:
        refuse(str(error))
