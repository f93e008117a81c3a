"""The interfaces of sandboxes and runtimes, and the values that they take."""
