"""The journal of a run: every answer that GEPA got, in the order of its requests, in a durable store."""
