"""The asynchronous client against a real server. What it shares with the other one is tested there."""

import asyncio

import pytest

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]


def test_runs_side_by_side(platform):
    from trellis import aio

    async def train() -> None:
        client = await aio.connect(home=platform.home)
        runs = await asyncio.gather(*(client.run("native:mlp", rounds=2, seed=seed) for seed in range(3)))
        infos = await asyncio.gather(*(run.wait(60, progress=False) for run in runs))
        assert [info.outcome for info in infos] == ["completed"] * 3
        for run in runs:
            assert [row["round"] for row in await run.history] == [1, 2]
            assert await run.model()
            assert [event.kind async for event in run.events()].count("round") >= 2
            lines = [line async for line in run.logs()]
            assert any("round 2" in line.lower() for line in lines), lines

    asyncio.run(train())


def test_a_wait_is_cancelled_at_once_and_the_run_goes_on(platform):
    from trellis import aio

    async def cancel() -> None:
        client = await aio.connect(home=platform.home)
        run = await client.run("native:mlp", rounds=100_000)
        waiting = asyncio.create_task(run.wait(progress=False))
        async for event in run.events(timeout=60):
            if event.kind == "round":
                break
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 5)
        assert (await run.refresh()).state == "running"
        await run.stop()
        assert (await run.wait(60, progress=False)).outcome == "stopped"

    asyncio.run(cancel())


def test_a_federation_of_its_own(script):
    script(
        """
import asyncio
from trellis import aio
async def main():
    async with await aio.up(nodes=1) as federation:
        run = await federation.run(rounds=1)
        assert (await run.wait(60)).outcome == "completed"
asyncio.run(main())
"""
    )
