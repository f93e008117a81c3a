"""A reflection model for the program of a run."""

import json

import pytest

from tests.gepa_client.scripted_server import Host
from tests.gepa_client.word_program import Script


@pytest.fixture
def model(host: Host, words: Script) -> list[str | int]:
    """The arguments for a reflection model."""
    url = host.serve(words.complete, "/v1/chat/completions").removesuffix("/chat/completions")
    return ["--reflection-lm", "openai/x", "--reflection-lm-kwargs", json.dumps({"api_base": url, "api_key": "hush"})]
