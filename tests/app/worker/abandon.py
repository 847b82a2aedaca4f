"""Run by a test: starts an engine, names its process, and loads or answers until it is killed."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from app.worker.worker import EngineWorker
from engine.request import GenerationRequest, ModelSpec
from tests.app import fake_engine


async def main() -> None:
    worker = EngineWorker(ModelSpec("fake", sys.argv[2]), getattr(fake_engine, sys.argv[1]))
    loaded = asyncio.create_task(worker.start())
    while worker.pid is None:
        await asyncio.sleep(0.01)
    sys.stdout.write(f"{worker.pid}\n")
    sys.stdout.flush()
    await loaded
    sys.stdout.write("loaded\n")
    sys.stdout.flush()
    async for _ in worker.generate(GenerationRequest((1,), 10**6)):
        pass


if __name__ == "__main__":
    asyncio.run(main())
