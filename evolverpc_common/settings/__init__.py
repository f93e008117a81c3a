"""Settings: one definition makes flag, key, environment variable, help, default and reference entry."""
