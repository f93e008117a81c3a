"""The code and the texts that a batch or step begins with, on a server."""

from collections.abc import Mapping

from evolverpc_common.settings.sources import SettingsError
from gepa_client.evolution.names import component_texts
from gepa_client.transport.rpc_client import RpcClient
from gepa_service.model.work import ProgramWork
from protocol import Candidate
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, added_to


async def version_on(client: RpcClient, program: ProgramWork) -> Candidate:
    """Bring the code of the work's version, whose commits no repository has, to a discovered server.

    Return the candidate with that code, and with the texts that mutations of it added.

    Raises:
        RpcError, ClientError: the server refuses the code or does not answer.
    """
    discovery = client.discovery
    assert discovery is not None, "the server was discovered"  # noqa: S101
    seed = discovery.program.seed_candidate
    if program.bundles:
        await client.call("import_commits", {"bundles": program.bundles})
    if program.code is None:
        return seed
    added = {name: text for name, text in program.candidate.items() if name not in component_texts(seed)}
    return {**seed, GIT_BRANCH: program.code, ADDED_COMPONENTS: added_components(added)}


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
