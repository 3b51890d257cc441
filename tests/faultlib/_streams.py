"""Apis that are run in steps: generators and coroutines."""

from __future__ import annotations

import asyncio

from faultlib._apis import kernels_of_call, run, take_rows
from kernlib import kernel_api

__all__ = ["put_later", "put_one_by_one", "rows_later"]


@kernel_api(kernels=kernels_of_call)
def put_one_by_one(out, slots, values):
    """Write to one slot after the other as ``put`` does; yield each slot, return their number."""
    for at in range(slots.shape[0]):
        run("put", out, out, slots[at : at + 1], values[at : at + 1])
        yield int(slots[at])
    return slots.shape[0]


@kernel_api(kernels=kernels_of_call)
async def put_later(out, slots, values):
    """Write as ``put`` does when others have had their turn; return the sum of ``out``."""
    await asyncio.sleep(0)
    run("put", out, out, slots, values)
    return out.sum()


@kernel_api(kernels=kernels_of_call)
async def rows_later(pool, pages):
    """Yield one row of ``pool`` after the other."""
    for at in range(pages.shape[0]):
        await asyncio.sleep(0)
        yield take_rows(pool, pages[at : at + 1])
