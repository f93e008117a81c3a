"""The routes, one file for each resource."""

from fastapi import APIRouter

from gepa_service.api.routes import github, health, jobs, repositories

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    repositories.router,
    github.router,
    jobs.router,
)
