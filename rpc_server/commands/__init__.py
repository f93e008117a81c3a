"""Commands of others, run to an end that none of their processes outlives."""
