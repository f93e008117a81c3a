"""What `gepa-server` does with its flags."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from evolverpc_common.version import VERSION
from rpc_server.cli.announce import Announcer
from rpc_server.cli.flags import JSON_VARIABLE, command_of, with_one_command
from rpc_server.cli.listen_address import placed
from rpc_server.cli.serve import CANNOT_START, serve
from rpc_server.http.file_descriptors import raise_descriptor_limit
from rpc_server.program import conformance_program
from rpc_server.settings.config_file import SettingsError, load_settings


def run(arguments: Sequence[str]) -> None:
    """Run the command with these arguments and exit with its status."""
    if [*arguments] == ["--version"]:
        print(f"gepa-server {VERSION}")
        sys.exit(0)
    try:
        command_of(_start)(with_one_command(arguments), prog_name="gepa-server")
    except SettingsError as error:
        Announcer(json_lines="--json" in arguments or JSON_VARIABLE in os.environ).failed(str(error))
        sys.exit(CANNOT_START)


def _start(config: Path | None, flags: dict[str, Any], *, json_lines: bool, conformance: bool) -> None:
    logging.basicConfig(level=logging.WARNING, format="gepa-server: %(levelname)s: %(message)s")
    raise_descriptor_limit()
    rows = None
    if conformance:
        file = Path(conformance_program.__file__).resolve()
        flags = {"program": str(file), "name": "conformance", "root": str(file.parent), **flags}
        rows = conformance_program.DATASETS
    settings, inherited = placed(load_settings(config, flags, find=not conformance), os.environ, flags)
    sys.exit(uvloop.run(serve(settings, Announcer(json_lines=json_lines), rows, inherited)))
