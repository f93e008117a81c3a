"""The routes, one file for each resource."""

from fastapi import APIRouter

from gepa_service.api.routes import health, journal

ROUTERS: tuple[APIRouter, ...] = (health.router, journal.router)
