"""The routes, one file for each resource."""

from fastapi import APIRouter

from gepa_service.api.routes import (
    audit,
    deliver,
    github,
    health,
    job_events,
    jobs,
    journal,
    keys,
    members,
    programs,
    repositories,
    rollouts,
    secrets,
    steps,
    usage,
    webhooks,
)

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    repositories.router,
    github.router,
    jobs.router,
    job_events.router,
    journal.router,
    programs.router,
    deliver.router,
    rollouts.router,
    steps.router,
    webhooks.router,
    keys.router,
    members.router,
    secrets.router,
    usage.router,
    audit.router,
)
