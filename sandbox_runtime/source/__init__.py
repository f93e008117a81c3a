"""The source of a sandbox: its program at a commit, what that needs installed, and credentials for its repository."""

from sandbox_runtime.source.client_sandbox import ClientSandbox, ClientSettings
from sandbox_runtime.source.git import CredentialsFailed, GitCredentials, GitFailed, GitToken
from sandbox_runtime.source.source import Checkout, Source

__all__ = [
    "ClientSandbox",
    "ClientSettings",
    "Source",
    "Checkout",
    "GitCredentials",
    "GitToken",
    "CredentialsFailed",
    "GitFailed",
]
