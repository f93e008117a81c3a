from tests.gepa_client.endpoint_fixtures import server, token

__all__ = ["server", "token"]
