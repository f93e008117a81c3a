"""What the service remembers: the types of its records."""
