# SPDX-License-Identifier: Apache-2.0
"""asyncio on verge's queue: a thousand requests, each with a time-out that hardly ever fires."""

import asyncio
import verge


async def request(number):
    async with asyncio.timeout(0.05):
        await asyncio.sleep(10 if number % 100 == 0 else 0.001)


async def main():
    results = await asyncio.gather(*(request(n) for n in range(1000)), return_exceptions=True)
    print(sum(isinstance(r, TimeoutError) for r in results), "of", len(results), "timed out")


with asyncio.Runner(loop_factory=verge.EventLoop) as runner:
    runner.run(main())
