"""What of a program a run changes: as its settings say, or as the program offers."""

from gepa_client.evolution import Evolve
from gepa_client.settings.loading import SettingsError
from gepa_client.settings.run_config import CODE_ONLY, RunConfig
from protocol import DiscoverResult
from protocol.code import CODE_COMPONENTS, GIT_BRANCH, added_to, commit_of

NO_MODEL = (
    "the server changes code, and a change has to be asked for by a reflection model: give --reflection-lm MODEL, "
    "or --evolve prompts to have the prompts changed alone"
)


def evolve_of(config: RunConfig, discovery: DiscoverResult) -> Evolve:
    """What is changed, as the settings say or the program offers.

    Raises:
        SettingsError: the program does not offer it, or nothing would come of another setting.
    """
    components = discovery.program.seed_candidate
    try:
        commit_of(components)
        added_to(components)
    except ValueError as error:
        raise SettingsError(f"the server cannot be used: its {error}") from None
    offered = GIT_BRANCH in components and "mutations" in discovery.capabilities
    evolve = config.evolve or ("both" if offered else "prompts")
    texts = [name for name in components if name not in CODE_COMPONENTS]
    if evolve == "prompts":
        if unheeded := config.given(CODE_ONLY):
            raise SettingsError(
                f"{unheeded} is given, but the server does not change code (start it with --allow-mutations)"
            )
        if GIT_BRANCH in components and not texts:
            raise SettingsError("the program has no prompts to change: have its code changed (--evolve code)")
        return evolve
    if not offered:
        lack = "change code" if GIT_BRANCH in components else "say which commit runs, nor change code"
        raise SettingsError(f"evolve is `{evolve}`, but the server does not {lack}: start it with --allow-mutations")
    if config.reflection_lm is None:
        raise SettingsError(NO_MODEL)
    if evolve == "both" and not texts and (unheeded := config.given(("code_until",))):
        raise SettingsError(f"{unheeded} is given, but the program has no prompts to change after it")
    return evolve
