"""Settings of the optimizer: every flag, key and variable, and how they are read."""
