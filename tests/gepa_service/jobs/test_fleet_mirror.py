"""The copy of an endpoints file that a driver reads."""

import asyncio
from pathlib import Path

from gepa_service.jobs.driver_place import fleet_mirror
from tests.support.waiting import eventually


async def test_a_sandbox_that_ends_while_the_first_copy_is_made_does_not_fail_it(tmp_path: Path) -> None:
    fleet, shared, token = tmp_path / "fleet", tmp_path / "shared", tmp_path / "job"
    shared.mkdir()
    token.write_text("t")
    fleet.write_text("http://127.0.0.1:1 token-file=gone.token\n")

    async def replaced() -> None:
        await asyncio.sleep(0.1)
        (tmp_path / "new.token").write_text("n")
        fleet.write_text("http://127.0.0.1:2 token-file=new.token\n")

    replacing = asyncio.create_task(replaced())
    async with fleet_mirror(shared, fleet, token, str):
        assert (shared / "fleet").read_text() == "http://127.0.0.1:2 token-file=new.token\n"
        assert (shared / "new.token").read_text() == "n"
        token.write_text("renewed")
        await eventually(lambda: (shared / "token").read_text() == "renewed")
    await replacing
