"""Calls with a `call_id`: admission, execution, and stored answers."""
