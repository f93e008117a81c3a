"""Whether the API answers, and whether it can do its work."""

from fastapi import APIRouter

router = APIRouter(tags=["operation"])


@router.get("/health")
async def health() -> dict[str, str]:
    """Report that the process answers."""
    return {"status": "ok"}
