"""The routes, one file for each resource."""

from fastapi import APIRouter

from gepa_service.api.routes import (
    delivery,
    github,
    health,
    job_events,
    jobs,
    oidc_sign_in,
    page,
    processes,
    programs,
    repositories,
    sessions,
    steps_and_batches,
    tenant,
    webhooks,
)

ROUTERS: tuple[APIRouter, ...] = (
    page.router,
    sessions.router,
    oidc_sign_in.router,
    health.router,
    repositories.router,
    github.router,
    jobs.router,
    job_events.router,
    processes.router,
    programs.router,
    delivery.router,
    steps_and_batches.router,
    webhooks.router,
    tenant.router,
)
