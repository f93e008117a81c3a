"""Which settings of `evolverpc optimize` and `evolverpc serve` apply to `evolverpc.optimize`."""

from gepa_client.settings.run_config import ROW_SETTINGS, SETTINGS
from gepa_client.settings.run_settings import SandboxSettings
from rpc_server.settings import SETTINGS as SERVER_SETTINGS
from rpc_server.settings import CodeChangeSettings, ListenSettings

NOT_OF_RUN = frozenset(
    {"url", "fleet", "token_file", "allow_insecure", "require", *SandboxSettings.model_fields} - {"model_prices"}
)
"""Settings of a run that name servers, or where they come from, and the exit status that it has."""

NOT_OF_SERVER = frozenset({*ListenSettings.model_fields, *CodeChangeSettings.model_fields, "jail", "name", "program"})
"""Settings of a server that are for the command; `name` is that of the run."""

NOT_OF_THREADS = frozenset({"workers", "python", "env", "root", "logs"})
"""Settings of a server that do not apply to a program that runs in threads of this process."""

SERVER = {name: each for name, each in SERVER_SETTINGS.items() if name not in NOT_OF_SERVER}
KEYWORDS = {name: each for name, each in SETTINGS.items() if name not in {*NOT_OF_RUN, *ROW_SETTINGS}}
"""Settings of the run; if the server has one of that name too, it is given to the server."""
