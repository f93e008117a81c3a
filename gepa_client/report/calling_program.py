"""What differs in a text with the language of the program, or if its call of `optimize` started the command."""

import json
import shlex
from contextvars import ContextVar

from gepa_client.errors import NO_ANSWER
from gepa_client.evolution.candidate_names import component_texts
from gepa_client.run.output_folder import BEST_CANDIDATE
from gepa_client.run.run_view import RunView
from protocol.code import code_at
from protocol.discovery import TYPESCRIPT

RUNNERS = ("bun", "node", "npx", "tsx")
"""Commands that run programs in TypeScript and JavaScript."""

by_typescript: ContextVar[bool] = ContextVar("by_typescript", default=False)
"""Whether such a program started the command."""


def where_of(server: str, language: str) -> str:
    """Return where a program runs, given its server; TypeScript's `optimize` has it in its process or isolated."""
    if not by_typescript.get():
        return f"behind {server} ({language})"
    return "in this process" if language == TYPESCRIPT else "in child processes"


def load_call(language: str | None, folder: str) -> str:
    """Return what loads the best candidate from a run's folder, in the language of the program; else what prints it.

    `language`: as the server states it. That of an isolated program is not TypeScript; its caller is.
    """
    if by_typescript.get() or language in (TYPESCRIPT, *RUNNERS):
        return f'import {{ loadCandidate }} from "evolverpc"; loadCandidate({json.dumps(folder)})'
    if language is None or language.startswith("python"):
        return f"import evolverpc; evolverpc.load_candidate({json.dumps(folder)})"
    return f"cat {shlex.quote(f'{folder}/{BEST_CANDIDATE}')}"


def use_of(view: RunView, folder: str, check_out: str) -> str | None:
    """Return how the best candidate is used: `check_out` if its code differs from the seed's, and what loads its texts.

    None if it is the seed. `folder`: that of the run.
    """
    if view.seed is None or view.best is None or view.best.index == 0:
        return None
    if view.certificate is not None and view.certificate.verdict == "worse":
        return "no: the test rows show that it is worse than the seed"
    seed, best = view.seed.texts, view.best.texts
    parts = [check_out] if code_at(seed)[1] != code_at(best)[1] else []
    if component_texts(seed) != component_texts(best):
        parts.append(load_call(view.language, folder))
    return ", and in the program ".join(f"`{part}`" for part in parts) or None


def blocked_hint(error: str) -> str:
    """Return why a program that TypeScript serves in its own process may have given no answer; "" for other errors."""
    if not by_typescript.get() or NO_ANSWER not in error:
        return ""
    return "the program does not answer: if its code blocks the event loop of its process, set `isolated: true`"
