"""Rows that the server or its program holds."""
