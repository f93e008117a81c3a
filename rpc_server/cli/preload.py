"""Import everything that `gepa-server` needs, for a process that forks servers; start nothing.

A fork sets `sys.argv` and its environment, and calls `rpc_server.cli.main`.
"""

from rpc_server.cli import serve
from rpc_server.mutations import open_mutations
from rpc_server.worktrees import open_worktrees

__all__ = ["open_mutations", "open_worktrees", "serve"]
