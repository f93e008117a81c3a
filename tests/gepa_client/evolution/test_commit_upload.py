"""An endpoint that lacks a commit receives the commits up to it once, for every method."""

from collections import Counter

import pytest

from gepa_client import Interrupted, RemoteAdapter
from gepa_client.journal.answer_entries import MutationEntry
from gepa_client.journal.entries import EVALUATE
from protocol.code import GIT_BRANCH, commit_of, git_branch
from protocol.errors import LimitExceeded, UnknownCandidate
from tests.gepa_client.code_server import CODE, SEED, CodeServer
from tests.gepa_client.scripted_server import rows


def chain(server, count):
    """Mutations of the seed one after the other; their entries."""
    candidate, entries = server.seed_candidate, []
    for number in range(count):
        mutation = {"kind": "change_request", "request": "learn green"}
        params = {"candidate": candidate, "mutation": mutation, "name": {"run": "r", "number": number}}
        applied = server.replies["apply_mutation"](params)
        entries.append(MutationEntry(kind="change_request", request="r", parent=commit_of(candidate), applied=applied))
        candidate = applied["candidate"]
    return entries, candidate


@pytest.fixture
def lacking(code_server):
    """A server without the commits that another one made, an adapter of it, and a candidate at the last of them."""
    entries, candidate = chain(CodeServer(), 3)
    server = code_server()
    with RemoteAdapter(server.url, max_attempts=1) as adapter:
        for entry in entries:
            adapter.commits.add(entry)
        yield server, adapter, candidate


def test_an_evaluation_uploads_the_commits_up_to_its_own_once(lacking):
    server, adapter, candidate = lacking
    batch = adapter.evaluate(rows(12), candidate)
    assert len(batch.scores) == 12
    bundles = [bundle for call in server.called("import_commits") for bundle in call["bundles"]]
    assert max(Counter(bundles).values()) == 1
    assert len(bundles) == 3


def test_a_new_process_at_the_address_receives_the_commits_again(lacking):
    server, adapter, candidate = lacking
    adapter.evaluate(rows(1), candidate)
    server.repository = {SEED: CODE}
    server.forget("second")
    adapter.wait_for(adapter.fleet.clients[0].discover())
    adapter.evaluate(rows(1), candidate)
    assert len(server.called("import_commits")) == 2


def test_large_bundles_are_sent_in_several_requests(lacking):
    server, adapter, candidate = lacking
    server.limits["max_request_bytes"] = 10
    adapter.wait_for(adapter.fleet.clients[0].discover())
    adapter.evaluate(rows(1), candidate)
    assert [len(call["bundles"]) for call in server.called("import_commits")] == [1, 1, 1]


def refuses(_params):
    raise LimitExceeded("too large")


def test_if_every_endpoint_refuses_a_commit_the_run_pauses_with_the_reason(lacking):
    server, adapter, candidate = lacking
    server.replies["import_commits"] = refuses
    words = f"{server.url.removesuffix('/rpc')} does not accept commit {commit_of(candidate)[:12]}, .*: .*too large"
    with pytest.raises(Interrupted, match=words) as caught:
        adapter.evaluate(rows(1), candidate)
    assert caught.value.status == "paused"
    with pytest.raises(Interrupted, match="the run has no bundle of it"):
        adapter.evaluate(rows(1), {**candidate, GIT_BRANCH: git_branch("main", "b" * 40)})


def test_a_commit_that_an_endpoint_still_lacks_is_not_uploaded_again(lacking):
    server, adapter, candidate = lacking
    server.replies["import_commits"] = lambda params: (
        {"commits": []} if len(server.called("import_commits")) < 3 else refuses(params)
    )
    with pytest.raises(UnknownCandidate):
        adapter.evaluate(rows(1), candidate)
    assert len(server.called("import_commits")) == 1


def test_a_call_is_retried_elsewhere_if_an_endpoint_refuses_its_commit(code_server):
    entries, candidate = chain(CodeServer(), 2)
    refusing, taking = code_server("first"), code_server("second")
    refusing.replies["import_commits"] = refuses
    with RemoteAdapter([refusing.url, taking.url], max_attempts=1) as adapter:
        for entry in entries:
            adapter.commits.add(entry)
        assert len(adapter.evaluate(rows(12), candidate).scores) == 12
        assert adapter.journal.spending[EVALUATE].examples == 12
    assert refusing.called("import_commits") and len(taking.called("import_commits")) == 1


def test_endpoints_must_start_from_the_same_commit_on_any_branch(code_server):
    first, second = code_server("first"), code_server("second")
    second.seed_candidate = {**second.seed_candidate, GIT_BRANCH: git_branch("detached", SEED)}
    with RemoteAdapter([first.url, second.url]) as adapter:
        assert len(adapter.fleet.endpoints) == 2
    second.seed_candidate = {**second.seed_candidate, GIT_BRANCH: git_branch("main", "a" * 40)}
    with pytest.raises(Exception, match=f"git_branch: commit {'a' * 40} instead of {SEED}"):
        RemoteAdapter([first.url, second.url])
