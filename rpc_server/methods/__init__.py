"""The contract's methods."""
