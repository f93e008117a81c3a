"""The built page of the service, which this package holds in `dist`: `clients/dashboard` makes it."""
