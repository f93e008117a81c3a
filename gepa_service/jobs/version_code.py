"""The code and the texts that a batch or step begins with, on the server of each of its sandboxes."""

import asyncio
from collections.abc import Callable, Mapping

from evolverpc_common.settings.sources import SettingsError
from gepa_client.evolution.names import component_texts
from gepa_client.transport.rpc_client import RpcClient
from protocol import ApplyMutationResult, Candidate
from protocol.code import ADDED_COMPONENTS, added_components, added_to


class VersionCode:
    """A candidate with the code of a version, whose commits no repository has.

    `patch`: from the commit in the sandboxes to that code; None if it is that commit's. `present`: returns a candidate
    with the texts of the work. `timeout_s`: of applying the patch. `bundles`: the commits, in base64, parents first.
    """

    def __init__(self, patch: str | None, present: Callable[[Candidate], Candidate], timeout_s: float) -> None:
        self._patch, self._present, self._timeout_s = patch, present, timeout_s
        self._patched: Candidate | None = None
        self._turn = asyncio.Lock()
        self.bundles: list[str] = []

    async def on(self, client: RpcClient) -> Candidate:
        """Bring the code to a discovered server, and return the candidate.

        Raises:
            SettingsError: the program has no such components, or its server changes no code. RpcError, ClientError: the
            server refuses it or does not answer.
        """
        discovery = client.discovery
        assert discovery is not None, "the server was discovered"  # noqa: S101
        async with self._turn:
            if self._patch is not None and self._patched is None:
                params = {
                    "candidate": discovery.program.seed_candidate,
                    "mutation": {"kind": "patch", "diff": self._patch},
                }
                made = await client.apply_mutation(params, call_id=client.new_call_id(), timeout_s=self._timeout_s)
                self.add(made)
                self._patched = made.candidate
            elif self.bundles:
                await client.import_commits(self.bundles)
        return self._present(self._patched or discovery.program.seed_candidate)

    def add(self, made: ApplyMutationResult) -> None:
        """Note a further commit, which other servers get too."""
        if made.bundle is not None:
            self.bundles.append(made.bundle)


def with_texts(candidate: Candidate, texts: Mapping[str, str]) -> Candidate:
    """Return the candidate with other texts, those that code mutations added among them.

    Raises:
        SettingsError: it has no component of a name.
    """
    known = component_texts(candidate)
    if unknown := texts.keys() - known.keys():
        raise SettingsError(f"the program has no component {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    own = {name: text for name, text in texts.items() if name in candidate}
    added = {**added_to(candidate), **{name: text for name, text in texts.items() if name not in candidate}}
    found = {**candidate, **own}
    return {**found, ADDED_COMPONENTS: added_components(added)} if ADDED_COMPONENTS in candidate else found
