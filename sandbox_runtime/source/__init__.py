"""The source of a sandbox: its program at a commit, what that needs installed, and credentials for its repository."""

from sandbox_runtime.source.client_sandbox import ClientSandbox, ClientSettings
from sandbox_runtime.source.remote_git import CredentialsFailed, GitFailed, GitToken
from sandbox_runtime.source.source import Checkout, Source

__all__ = [
    "ClientSandbox",
    "ClientSettings",
    "Source",
    "Checkout",
    "GitToken",
    "CredentialsFailed",
    "GitFailed",
]
