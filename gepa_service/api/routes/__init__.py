"""The routes, one file for each resource."""

from fastapi import APIRouter

from gepa_service.api.routes import (
    attempt_calls,
    audit,
    browser_session,
    deliver,
    execute_step,
    github,
    health,
    job_events,
    jobs,
    journal,
    keys,
    members,
    page,
    programs,
    repositories,
    rollouts,
    secrets,
    usage,
    webhooks,
)

ROUTERS: tuple[APIRouter, ...] = (
    page.router,
    browser_session.router,
    health.router,
    repositories.router,
    github.router,
    jobs.router,
    job_events.router,
    journal.router,
    attempt_calls.router,
    programs.router,
    deliver.router,
    rollouts.router,
    execute_step.router,
    webhooks.router,
    keys.router,
    members.router,
    secrets.router,
    usage.router,
    audit.router,
)
