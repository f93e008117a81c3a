"""The routes, one file for each resource."""

from fastapi import APIRouter

from gepa_service.api.routes import audit, github, health, jobs, journal, keys, members, repositories, secrets, usage

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    repositories.router,
    github.router,
    jobs.router,
    journal.router,
    keys.router,
    members.router,
    secrets.router,
    usage.router,
    audit.router,
)
