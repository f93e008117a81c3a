"""Try a server on a few rows before a run is paid for."""
