from tests.gepa_client.endpoint_fixtures import eventually, proxy, proxy_to, server, token

__all__ = ["eventually", "proxy", "proxy_to", "server", "token"]
