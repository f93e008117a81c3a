"""The routes, one file for each resource."""

from fastapi import APIRouter

from gepa_service.api.routes import (
    deliver,
    github,
    health,
    job_events,
    jobs,
    programs,
    repositories,
    rollouts,
    steps,
    webhooks,
)

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    repositories.router,
    github.router,
    jobs.router,
    job_events.router,
    programs.router,
    deliver.router,
    rollouts.router,
    steps.router,
    webhooks.router,
)
