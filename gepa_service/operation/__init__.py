"""What an operator does with a service as a whole: delete, keep for a time, copy and restore."""
