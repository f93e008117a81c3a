"""Whether a sandbox reaches the gateway, tried from inside: a forwarder that leads elsewhere is seen nowhere else."""

from sandbox_runtime.api.spec import Command
from sandbox_runtime.backends.modal.places import SERVER_PYTHON

_KNOCK_S = 30.0

_KNOCK = """
import http.client, sys, urllib.error, urllib.request

direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    status = direct.open(sys.argv[1], timeout=20).status
except urllib.error.HTTPError as error:
    status = error.code
except (OSError, http.client.HTTPException) as error:
    sys.exit(str(error))
if status != 401:
    sys.exit(f"it answers with status {status}, which is not the gateway's answer to a stranger")
"""


def knock(models_url: str) -> Command:
    """Asks the gateway for something without a token, which it refuses; anything else is told on stderr."""
    return Command((SERVER_PYTHON, "-I", "-S", "-c", _KNOCK, models_url), timeout_s=_KNOCK_S)
