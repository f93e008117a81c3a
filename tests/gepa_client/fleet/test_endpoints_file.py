from pathlib import Path

import pytest

from gepa_client.errors import Refused
from gepa_client.fleet import Address, read_endpoints_file


def test_an_endpoints_file_lists_one_endpoint_a_line(tmp_path):
    path = tmp_path / "fleet"
    lines = [
        "# the machines under the desk",
        "http://127.0.0.1:8001",
        "",
        "  https://far.example.org/gepa/rpc   token-file=secrets/far  # in the other room",
        "http://localhost:8002 token-file=/run/token",
        "http+unix://%2Frun%2Fsandbox proxy-token-file=p token-file=t",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert read_endpoints_file(path) == [
        Address("http://127.0.0.1:8001", listed=True),
        Address("https://far.example.org/gepa/rpc", token_file=tmp_path / "secrets/far", listed=True),
        Address("http://localhost:8002", token_file=Path("/run/token"), listed=True),
        Address(
            "http+unix://%2Frun%2Fsandbox", token_file=tmp_path / "t", proxy_token_file=tmp_path / "p", listed=True
        ),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "127.0.0.1:8000",
        "http://far.example.org",
        "http://localhost:1 token=secret",
        "http://localhost:1 token-file=",
        "http://localhost:1 token-file=a token-file=b",
        "http+unix://relative",
        "http://localhost:1 http://localhost:2",
        "http://127.0.0.1:8000/rpc",
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path, line):
    path = tmp_path / "fleet"
    path.write_text(f"http://127.0.0.1:8000\n{line}\n", encoding="utf-8")
    with pytest.raises(Refused, match=r"fleet, line 2: "):
        read_endpoints_file(path)


def test_plain_http_beyond_this_machine_is_taken_when_allowed(tmp_path):
    path = tmp_path / "fleet"
    path.write_text("http://10.0.0.1:80\n", encoding="utf-8")
    assert read_endpoints_file(path, allow_insecure=True) == [
        Address("http://10.0.0.1:80", allow_insecure=True, listed=True)
    ]
