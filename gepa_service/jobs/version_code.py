"""The code and the texts that a batch or step begins with, on a server."""

from collections.abc import Callable, Mapping

from evolverpc_common.settings.sources import SettingsError
from gepa_client.evolution.names import component_texts
from gepa_client.transport.rpc_client import RpcClient
from gepa_service.model.work import ProgramWork
from protocol import ApplyMutationResult, Candidate
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, added_to


class VersionCode:
    """A candidate with the code of a version, whose commits no repository has.

    `program`: what the work does; the commits of its version are in `bundles`. `present`: returns a candidate with the
    texts of the work. `bundles`: in base64, parents first; those of further commits too. A fleet brings them to others.
    """

    def __init__(self, program: ProgramWork, present: Callable[[Candidate], Candidate]) -> None:
        self._program, self._present = program, present
        self.bundles = list(program.bundles)

    async def on(self, client: RpcClient) -> Candidate:
        """Bring the code to a discovered server, and return the candidate.

        Raises:
            SettingsError: the program has no such components. RpcError, ClientError: the server refuses the code or
            does not answer.
        """
        discovery = client.discovery
        assert discovery is not None, "the server was discovered"  # noqa: S101
        seed, program = discovery.program.seed_candidate, self._program
        if self.bundles:
            await client.call("import_commits", {"bundles": self.bundles})
        if program.code is None:
            return self._present(seed)
        added = {name: text for name, text in program.candidate.items() if name not in component_texts(seed)}
        return self._present({**seed, GIT_BRANCH: program.code, ADDED_COMPONENTS: added_components(added)})

    def add(self, made: ApplyMutationResult) -> None:
        """Note a further commit."""
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
