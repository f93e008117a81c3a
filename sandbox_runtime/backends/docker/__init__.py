"""Sandboxes in containers of Docker, or of Podman by `DOCKER_HOST`: run by the `docker` command line."""
