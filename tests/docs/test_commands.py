"""The commands in the quick start and the guides do what the pages show, with a local model in place of a paid one."""

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sandbox_runtime import running_server
from tests.docs import pages

DATA = pages.ROOT / "examples" / "tickets" / "data"
BIN = Path(sys.executable).parent
TOKEN = "shared-by-the-servers"
IMPROVED = "Answer with the label of the right team."


OPENAI = f"""
import json, pathlib
from types import SimpleNamespace as Some

LABELS = json.loads(pathlib.Path(__file__).with_name("labels.json").read_text())

class OpenAI:
    def __init__(self):
        self.chat = Some(completions=self)
    def create(self, *, model, messages):
        label = LABELS[messages[1]["content"]]
        known = messages[0]["content"] == {IMPROVED!r} or len(label) % 2
        return Some(choices=[Some(message=Some(content=label if known else "unknown"))])
"""
"""Stands for the package `openai`: its model knows all labels after the improved prompt, and some of them before."""


@contextmanager
def reflection_model() -> Iterator[str]:
    """Serve a model by OpenAI's API that always proposes the improved prompt."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            message = {"role": "assistant", "content": f"```\n{IMPROVED}\n```"}
            answer = {
                "id": "1", "object": "chat.completion", "created": 1, "model": "gpt-5",
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }  # fmt: skip
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


REPLACED = {
    "examples/tickets/data/": "",
    "--token-file token": "",
    "--at 120": "--at 20",
    "calls 400": "calls 40",
    "calls 5000": "calls 40",
    "calls 2000": "calls 80",
}
"""What a page's command has -> what the test gives it."""

PROPOSER = f"""

def propose_new_texts(candidate, reflective_dataset, components):
    return {{"prompt": {IMPROVED!r}}}
"""
"""Makes the program propose by itself, so that no reflection model is needed."""


@dataclass(frozen=True)
class Reader:
    """A user who follows the pages in a folder of their own, with servers of the quick start's program."""

    folder: Path
    urls: tuple[str, ...]
    environment: dict[str, str]

    def runs(self, line: str) -> None:
        """Run a page's command with the test's addresses and rows and a small budget; it must succeed."""
        for address, url in zip(("http://127.0.0.1:8000", "http://127.0.0.1:8001"), self.urls, strict=False):
            line = line.replace(address, url)
        for written, here in REPLACED.items():
            line = line.replace(written, here)
        words = shlex.split(line)
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            [str(BIN / words[0]), *words[1:]],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def write_files(folder: Path, more: str = "") -> None:
    """Write the page's program, `more` behind it, its package `openai`, and some rows."""
    labels = {}
    for split in ("train", "val"):
        rows = (DATA / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()[:12]
        labels |= {row["text"]: row["label"] for row in map(json.loads, rows)}
        (folder / f"{split}.jsonl").write_text("\n".join(rows))
    (folder / "labels.json").write_text(json.dumps(labels))
    (folder / "openai.py").write_text(OPENAI)
    (folder / "rows.jsonl").write_text((folder / "train.jsonl").read_text())
    (folder / "program.py").write_text(pages.block("docs/quickstart.md", "# program.py").text + more)


@contextmanager
def servers(folder: Path, count: int) -> Iterator[tuple[str, ...]]:
    """Run the quick start's `gepa-server` command on free ports."""
    [line] = [line for line in pages.block("docs/quickstart.md", "export").commands() if "gepa-server" in line]
    words = shlex.split(line.replace("--token-file token", "").replace("--port 8000", "--port 0"))
    with ExitStack() as running:
        started = [
            running.enter_context(
                running_server([str(BIN / words[0]), *words[1:]], cwd=folder, env={"GEPA_TOKEN": TOKEN})
            )
            for _ in range(count)
        ]
        yield tuple(endpoint.url for endpoint in started)


def test_the_quick_start_checks_the_program_and_improves_its_prompt(tmp_path: Path) -> None:
    write_files(tmp_path)
    with reflection_model() as url, servers(tmp_path, 1) as urls:
        keys = {
            "OPENAI_API_KEY": "none",
            "OPENAI_API_BASE": url,
            "GEPA_TOKEN": TOKEN,
            "LITELLM_LOCAL_MODEL_COST_MAP": "1",
        }
        reader = Reader(tmp_path, urls, keys)
        reader.runs(pages.block("docs/quickstart.md", "gepa-client check").commands()[0])
        reader.runs(pages.block("docs/quickstart.md", "gepa-client optimize").commands()[0])
    [best] = (tmp_path / "runs").glob("*/best_candidate.json")
    assert json.loads(best.read_text())["prompt"] == IMPROVED


def test_the_commands_about_fleets_and_long_runs_work_one_after_the_other(tmp_path: Path) -> None:
    write_files(tmp_path, PROPOSER)
    with servers(tmp_path, 2) as urls:
        (tmp_path / "endpoints.txt").write_text("\n".join(urls))
        reader = Reader(tmp_path, urls, {"GEPA_TOKEN": TOKEN})
        for line in pages.block("docs/guides/fleet.md", "gepa-client optimize").commands():
            reader.runs(line.replace("--reflection-lm openai/gpt-5", ""))
        for first_line in ("gepa-client show last", "gepa-client runs"):
            for line in pages.block("docs/guides/long-runs.md", first_line).commands():
                reader.runs(line)
