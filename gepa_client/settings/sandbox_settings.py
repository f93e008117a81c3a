"""The settings of a run whose servers are started for it, in sandboxes, from the program's repository."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from gepa_client.settings.group import Group, NumberOrText, PositiveFloat, PositiveInt, Texts

SandboxKind = Literal["bubblewrap", "process", "modal"]

REGISTRIES = (
    *("pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "nodejs.org"),
    *("github.com", "*.githubusercontent.com"),  # releases of Python
)

Usd = Annotated[float, Field(ge=0)]


class ModelProvider(Group):
    """A model provider that programs reach through the gateway, by the names of variables that it chooses for them.

    `key_env`: the variable of this environment that holds its key, None where it wants none. `dialect`: whose API it
    speaks. `key_header`: what carries the key, where that is not its dialect's. `counts_streams`: whether it takes
    OpenAI's `stream_options.include_usage`. `extra_fields`: fields of request bodies that are forwarded to it besides
    those of the OpenAI or Anthropic API.
    """

    base_url: str
    key_env: str | None = None
    dialect: Literal["openai", "anthropic"] = "openai"
    key_header: str | None = None
    counts_streams: bool = True
    extra_fields: tuple[str, ...] = ()


class SandboxSettings(Group):
    """Sandboxes: servers that are started for the run, from the program's repository."""

    repo: str | None = Field(
        None,
        description="The program's git repository, in place of a server: a URL, or a folder of one on this machine; "
        "URL#FOLDER for a folder of it.",
    )
    ref: str | None = Field(None, description="Its commit, tag or branch (default what is checked out there).")
    sandbox: SandboxKind = Field(
        "bubblewrap", description="What keeps the program in; `process` isolates nothing, and is for development."
    )
    sandboxes: PositiveInt = Field(1, description="How many are up at once, while there is work for all.")
    server_args: str = Field("", description="Further flags of the gepa-server in each, in one text as in a shell.")
    starts_per_s: PositiveFloat = Field(20.0, description="Sandboxes started per second, at most.")
    sandbox_cpu: PositiveFloat = Field(1.0, description="Cores that one may use.")
    sandbox_memory_mb: PositiveInt = Field(2048, description="Memory of one, in MiB.")
    sandbox_workspace_mb: PositiveInt = Field(1024, description="What may be written in one, in MiB.")
    sandbox_lifetime_s: PositiveFloat = Field(4 * 3600.0, description="Seconds after which one is replaced.")
    sandbox_ready_s: PositiveFloat = Field(120.0, description="Seconds one may take until its server answers.")
    sandbox_idle_s: PositiveFloat = Field(60.0, description="Seconds with work for fewer, after which some are ended.")
    allow_hosts: Texts = Field(
        (),
        description="What the program may reach besides models: a host (example.com, *.example.com), a network "
        "(192.0.2.0/24), or `*` for everything; may be given again.",
    )
    build_hosts: Texts = Field(
        REGISTRIES,
        description="What may be reached while its environment is built, as in allow_hosts; may be given again.",
    )
    pass_env: Texts = Field(
        (), description="A variable of this environment that the program is given, as a secret; may be given again."
    )
    models: Texts = Field(
        (), description="A model that the program may call, `*` and `?` as in file names (default all); again for more."
    )
    model_prices: dict[str, tuple[Usd, Usd]] | None = Field(
        None,
        description='Prices that are not known, or others, as JSON: {"MODEL": [IN, OUT]}, US dollars per million '
        "tokens.",
    )
    model_calls_per_minute: PositiveInt | None = Field(
        None, description="Calls to models per minute, of all sandboxes together."
    )
    model_providers: dict[str, ModelProvider] | None = Field(
        None,
        description="Model providers besides those whose keys are in OPENAI_API_KEY and ANTHROPIC_API_KEY, as JSON: "
        '{"NAME": {"base_url": URL, "key_env": VARIABLE}}; programs find them by NAME_BASE_URL and NAME_API_KEY.',
    )
    gateway_port: PositiveInt | None = Field(
        None, description="Port of this machine's loopback where the gateway to the models listens, for Modal."
    )
    gateway_url: str | None = Field(
        None, description="The URL at which a forwarder of yours makes that port reachable from Modal."
    )
    git_token_file: Path | None = Field(None, description="File that holds a token for cloning `repo`.")
    github_app_id: NumberOrText | None = Field(None, description="The GitHub App that may clone it.")
    github_app_key_file: Path | None = Field(None, description="File that holds the App's private key, as PEM.")
    github_installation_id: PositiveInt | None = Field(
        None, description="Its installation (default the one for the repository)."
    )
    modal_app: str | None = Field(None, description="The app at Modal that the sandboxes belong to.")


SANDBOX_ONLY = tuple(name for name in SandboxSettings.model_fields if name not in ("repo", "model_prices"))
"""Settings that mean something only with a `repo`."""

MODAL_ONLY = ("gateway_port", "gateway_url", "modal_app")


def is_remote(repo: str) -> bool:
    """Whether it is a URL, or `user@host:path`, rather than a folder of this machine."""
    head, colon, _ = repo.partition(":")
    return "://" in repo or (bool(colon) and "@" in head and "/" not in head)


def contradiction(settings: SandboxSettings) -> str | None:
    """What in these settings cannot be, `repo` being given; None where everything can."""
    repo = settings.repo or ""
    parts = urlsplit(repo) if "://" in repo else None
    if parts is not None and (parts.password is not None or (parts.username is not None and parts.scheme != "ssh")):
        return "repo: a token does not belong in a URL, where others can read it: give git_token_file"
    if settings.sandbox == "process" and settings.allow_hosts not in ((), ("*",)):
        return "sandbox is `process`, which cannot keep the program from any host: leave allow_hosts out"
    if settings.sandbox != "bubblewrap" and "build_hosts" in settings.model_fields_set:
        return f"build_hosts is for bubblewrap, which builds in a sandbox, but sandbox is `{settings.sandbox}`"
    if settings.sandbox == "process" and "sandbox_cpu" in settings.model_fields_set:
        return "sandbox is `process`, which bounds no processor: leave sandbox_cpu out"
    for name in MODAL_ONLY:
        if getattr(settings, name) is not None and settings.sandbox != "modal":
            return f"{name} is for Modal, but sandbox is `{settings.sandbox}`"
    if (settings.gateway_port is None) != (settings.gateway_url is None):
        return "gateway_port and gateway_url belong together: where it listens, and how that is reached from elsewhere"
    if settings.sandbox == "modal" and settings.gateway_url is None:
        for name in ("models", "model_calls_per_minute", "model_providers"):
            if getattr(settings, name):
                return f"{name} is given, but sandboxes at Modal reach no model without gateway_port and gateway_url"
    if (settings.github_app_id is None) != (settings.github_app_key_file is None):
        return "github_app_id and github_app_key_file belong together"
    if settings.github_installation_id is not None and settings.github_app_id is None:
        return "github_installation_id is given but github_app_id is not, so it would not be used"
    if settings.git_token_file is not None and settings.github_app_id is not None:
        return "git_token_file and github_app_id say the same thing: leave one of them out"
    if settings.allow_hosts and "*" in settings.allow_hosts and len(settings.allow_hosts) > 1:
        return "allow_hosts: `*` allows every host: leave the others out"
    return None
