"""A run whose servers live in sandboxes."""
