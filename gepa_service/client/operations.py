"""The operations of the API, a method each. Written by scripts/service_client.py: do not edit."""

from gepa_service.client.connection import Connection


class Operations(Connection):
    """One request for each method. Raises `ServiceProblem` and `ServiceUnreachable`."""
