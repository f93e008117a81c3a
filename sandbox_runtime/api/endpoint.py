"""Where a server in a sandbox answers, and what proves that we may talk to it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Endpoint:
    """`url`: `http(s)://host:port`, or `http+unix://` with the socket's path percent-encoded; with or without `/rpc`.

    `token`: the server's own. `proxy_token`: of whoever stands before it and wants `Authorization` for itself; the
    server's token then travels in `X-Gepa-Token`.
    """

    url: str
    token: str = field(repr=False)
    proxy_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class ProcessEndpoint(Endpoint):
    """One whose process is ours. `pid`: it leads a session of its own."""

    pid: int
