"""Connecting repositories: local ones, private ones by the GitHub App, and what is refused."""

import socket
from pathlib import Path

import httpx
import pytest

from evolverpc_common.network_addresses import parse_networks
from gepa_service.repositories.destinations import DestinationRefused, refused_network
from gepa_service.repositories.github_app import owner_and_name
from gepa_service.repositories.repository_access import RepositoryPolicy, allowed_repository, git_configuration
from tests.gepa_service.github_server import INSTALLATION, LoopbackGitHub
from tests.gepa_service.routes.conftest import Caller
from tests.sandbox_runtime.source.repositories import commit, git_host

PUBLIC_ONLY = RepositoryPolicy()


async def installed(github: LoopbackGitHub, caller: Caller, installation: int = INSTALLATION) -> httpx.Response:
    """Install the App as GitHub's user with the code `code`, and confirm it."""
    url = (await caller("POST", "/github/install")).json()["url"]
    github.codes["code"] = [*range(100, 200), INSTALLATION]  # on a second page
    query = {"state": url.partition("state=")[2], "code": "code", "installation_id": str(installation)}
    returned = await caller.client.get("/github/callback", params=query)
    if returned.status_code != 200:
        return returned
    return await caller("POST", "/github/installations", {"confirmation": returned.json()["confirmation"]})


async def test_a_local_repository_is_connected_once_and_listed_with_its_head(editor: Caller, program: str) -> None:
    first = await editor("POST", "/connect-git", {"repo_url": program})
    again = await editor("POST", "/connect-git", {"repo_url": program})
    assert first.status_code == again.status_code == 200, first.text
    assert first.json() == again.json() == {"client_id": first.json()["client_id"], "status": "connected"}
    listed = (await editor("GET", "/repositories")).json()
    assert [each["client_id"] for each in listed["items"]] == [first.json()["client_id"]]
    assert (listed["items"][0]["default_branch"], len(listed["items"][0]["head"])) == ("trunk", 40)


UNREADABLE = [
    ("/nowhere/at/all", "cannot be read"),
    ("http://127.0.0.1:1/owner/name", "cannot be read"),
    ("https://user@example.com/o/r", "leave user and password out"),
    ("ssh://git@github.com/o/r", "no key for ssh"),
    ("ftp://example.com/o/r", "https://"),
    ("https://no-such-host.invalid/o/r", "not known"),
    ("https://x/" + "a" * 1990, "not known"),
    ("ext::sh -c date", "absolute path"),
    ("~root/program", "absolute path"),
]


async def test_what_cannot_be_read_is_refused_by_field_and_reason(editor: Caller) -> None:
    for url, words in UNREADABLE:
        refused = await editor("POST", "/connect-git", {"repo_url": url})
        assert refused.status_code == 422, refused.text
        assert refused.json()["field"] == "repo_url"
        assert words in refused.json()["detail"]
        assert (refused.json()["title"] == "Host not found") == (words == "not known")
    assert (await editor("GET", "/repositories")).json()["items"] == []


@pytest.mark.parametrize(
    "url",
    [
        *("https://10.1.2.3/o/r", "https://127.0.0.1/o/r", "https://[::1]/o/r", "https://169.254.169.254/o/r"),
        *("https://localhost/o/r", "https://0x7f.1/o/r", "https://[::ffff:10.0.0.1]/o/r", "http://93.184.216.34/o/r"),
        *("/etc", "file:///etc", "http://127.0.0.1:80/o/r"),
    ],
)
def test_a_service_for_many_reads_no_private_network_and_no_folder(url: str) -> None:
    with pytest.raises(DestinationRefused):
        allowed_repository(url, PUBLIC_ONLY)


def test_a_folder_of_a_local_repository_is_within_it(tmp_path: Path) -> None:
    allowed = RepositoryPolicy(allow_local=True)
    assert allowed_repository(f"{tmp_path}#a/b", allowed).folder == "a/b"
    with pytest.raises(DestinationRefused, match="absolute path"):
        allowed_repository(f"{tmp_path}#a/../../b", allowed)


def test_a_name_that_resolves_to_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in ("93.184.216.34", "10.0.0.7")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(DestinationRefused, match="not a public host") as refused:
        allowed_repository("https://internal.example.com/o/r", PUBLIC_ONLY)
    assert "10.0.0.7" not in str(refused.value)


def test_git_connects_to_the_address_that_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [entry])
    found = allowed_repository("https://example.com/o/r", PUBLIC_ONLY)
    assert 'curloptResolve = "example.com:443:93.184.216.34"' in git_configuration(found)


@pytest.mark.parametrize(
    "host",
    ["b\u00fccher.example", "example.com.", "ex%61mple.com", "example\u3002com", "[fe80::1%25eth0]", "a\\.example"],
)
def test_a_host_that_git_would_write_differently_is_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [entry])
    with pytest.raises(DestinationRefused):
        allowed_repository(f"https://{host}/o/r", PUBLIC_ONLY)


def test_a_path_that_leads_elsewhere_in_githubs_api_is_no_repository() -> None:
    for path in ("../installation", "./r", "o/..", "o/%2e%2e", "o/r/pulls", "o/a%0d%0ab", "o"):
        assert owner_and_name(f"https://github.com/{path}", "github.com") is None
    assert owner_and_name("https://github.com/o.x/r_1-2.git", "github.com") == ("o.x", "r_1-2")


async def test_a_redirect_to_another_address_is_not_followed(editor: Caller, tmp_path: Path) -> None:
    commit(tmp_path / "served" / "secret", {"a": "b"})
    async with git_host(tmp_path / "served", "x") as inside, git_host(tmp_path, "x", inside.url("")[:-1]) as outside:
        refused = await editor("POST", "/connect-git", {"repo_url": outside.url("secret")})
        assert refused.status_code == 422
        assert "redirect" in refused.json()["detail"]
        assert inside.authorized == 0


async def test_a_private_repository_needs_the_installation_of_the_tenant(
    github: LoopbackGitHub, github_client: httpx.AsyncClient, program: str
) -> None:
    editor, stranger = Caller(github_client, "acme-editor"), Caller(github_client, "other-owner")
    github.add("owner/private", Path(program))
    body = {"repo_url": github.url("owner/private"), "installation_id": str(INSTALLATION)}
    for named in ("owner/private", "owner/reads-302"):  # the digits of a redirect in a name are none
        alone = await editor("POST", "/connect-git", {"repo_url": github.url(named)})
        assert (alone.status_code, alone.json()["field"]) == (422, "repo_url")
        assert "installation_id" in alone.json()["detail"]
    assert (await editor("POST", "/connect-git", body)).json()["field"] == "installation_id"
    assert (await installed(github, editor)).json() == {
        "installation_id": 42,
        "account": "account42",
        "suspended": False,
    }
    connected = await editor("POST", "/connect-git", body)
    assert connected.status_code == 200, connected.text
    assert {tuple(token.permissions.items()) for token in github.tokens.values()} == {
        (("contents", "read"), ("metadata", "read"))
    }
    assert (await stranger("POST", "/connect-git", body)).json()["field"] == "installation_id"


async def test_a_repository_beyond_the_limit_is_refused_before_it_is_read(
    github: LoopbackGitHub, github_client: httpx.AsyncClient, program: str
) -> None:
    editor = Caller(github_client, "acme-editor")
    github.add("owner/large", Path(program))
    github.sizes["owner/large"] = 2 << 20
    await installed(github, editor)
    body = {"repo_url": github.url("owner/large"), "installation_id": str(INSTALLATION)}
    refused = await editor("POST", "/connect-git", body)
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:evolverpc:repository-too-large")
    github.sizes.clear()
    github.redirects = True
    assert (await editor("POST", "/connect-git", body)).status_code != 200
    github.redirects = False
    assert (await editor("POST", "/connect-git", body)).status_code == 200
    assert "2,048 MiB" in refused.json()["detail"]


async def test_an_installation_that_the_user_does_not_manage_is_not_bound(
    github: LoopbackGitHub, github_client: httpx.AsyncClient
) -> None:
    refused = await installed(github, Caller(github_client, "acme-editor"), installation=9)
    assert (refused.status_code, refused.json()["field"]) == (422, "installation_id")


async def test_a_redirect_that_another_tenant_began_binds_nothing_to_it(
    github: LoopbackGitHub, github_client: httpx.AsyncClient
) -> None:
    attacker, victim = Caller(github_client, "evil-owner"), Caller(github_client, "acme-owner")
    url = (await attacker("POST", "/github/install")).json()["url"]
    github.codes["code"] = [INSTALLATION]
    query = {"state": url.partition("state=")[2], "code": "code", "installation_id": str(INSTALLATION)}
    shown = (await github_client.get("/github/callback", params=query)).json()  # in the victim's browser
    refused = await victim("POST", "/github/installations", {"confirmation": shown["confirmation"]})
    assert refused.status_code == 422
    own = {"repo_url": github.url("o/r"), "installation_id": str(INSTALLATION)}
    assert (await attacker("POST", "/connect-git", own)).json()["field"] == "installation_id"


async def test_a_forged_state_is_refused(github_client: httpx.AsyncClient) -> None:
    for state in ("forged", "eyJhbGciOiJub25lIn0.eyJ0ZW5hbnQiOiJhY21lIn0."):
        query = {"state": state, "code": "code", "installation_id": "1"}
        refused = await github_client.get("/github/callback", params=query)
        assert (refused.status_code, refused.json()["field"]) == (422, "state")


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [("10.1.2.0/24", False), ("10.0.0.0/8", True), ("8.8.8.8", False), ("fd00::/8", True), ("example.com", False)],
)
def test_sandboxes_reach_networks_within_those_that_the_operator_names(text: str, is_refused: bool) -> None:
    assert (refused_network(text, parse_networks(["10.1.0.0/16"])) is not None) == is_refused
