"""JSON-RPC 2.0: from request bytes to response bytes."""
