"""A server tried on a few rows before a run is paid for."""
