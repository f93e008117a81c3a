"""A client's sandbox: its program at a commit, what that needs installed, and who may read its repository."""

from sandbox_runtime.client.client_sandbox import ClientSandbox
from sandbox_runtime.client.credentials import CredentialsFailed, FirstOf, GitCredentials, GitToken
from sandbox_runtime.client.git import GitFailed
from sandbox_runtime.client.settings import ClientSettings
from sandbox_runtime.client.source import Checkout, Source

__all__ = [
    "ClientSandbox",
    "ClientSettings",
    "Source",
    "Checkout",
    "GitCredentials",
    "GitToken",
    "FirstOf",
    "CredentialsFailed",
    "GitFailed",
]
