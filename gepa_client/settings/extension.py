"""What extends a complete run: larger values of the limits that it reached."""

from gepa_client.journal.entries import StoredRun
from gepa_client.settings.run_config import ENDINGS, SETTINGS

NO_EXTENSION = "no larger limit extends it"


def ended_by(run: StoredRun) -> str:
    """Return the first word of why a complete run ended: the name of a limit, or `perfect_score`."""
    return (run.reason or "").partition(" ")[0]


def extension(run: StoredRun) -> list[str]:
    """Return flags by which a resume continues a complete run; none if no limit ended it.

    A limit is raised from its value or, if it would then still be reached, from what the run used.
    """
    if ended_by(run) not in ("perfect_score", *ENDINGS):
        return []
    flags = [SETTINGS["past_perfect"].flag] if ended_by(run) == "perfect_score" else []
    reached = run.counters | ({} if run.best is None else {"score": run.best["score"]})
    for name, limit in ENDINGS.items():
        given, used = run.config.get(name), reached.get(limit.counter)
        if name == ended_by(run) or (given is not None and used is not None and used >= given):
            larger = (2 * value if limit.doubled else value + 0.05 for value in (given, used) if value is not None)
            flags += [SETTINGS[name].flag, f"{next(value for value in larger if used is None or value > used):.15g}"]
    return flags
