"""HTTP: routes, authentication and connections."""
