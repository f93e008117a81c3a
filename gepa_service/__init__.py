"""Many people's optimizations over HTTP: tenants, jobs, versions of programs, secrets."""
