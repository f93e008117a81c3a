"""One endpoint: HTTP requests, responses, limits and addresses."""
