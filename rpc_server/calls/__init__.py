"""Calls: admission, execution, and kept results."""
