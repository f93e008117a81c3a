from tests.gepa_client.endpoint_fixtures import proxy, proxy_to, server, token

__all__ = ["proxy", "proxy_to", "server", "token"]
