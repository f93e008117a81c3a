from tests.gepa_client.endpoint_fixtures import proxy, server, token

__all__ = ["proxy", "server", "token"]
