"""A decode loop at Llama-3-8B size that crashes: one page-table entry points past the pool."""

import os
import sys

import torch

import kernlib

NUM_QO_HEADS, NUM_KV_HEADS, HEAD_DIM, PAGE_SIZE = 32, 8, 128, 16
NUM_PAGES = 64
LENGTHS = [37, 5, 120, 64, 1, 90, 33]  # tokens already in the cache, ragged
SPOILT_STEP, SPOILT_ENTRY, SPOILT_PAGE = 3, 5, 2**26


def page_table(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return indptr, page ids and the tokens on each last page for sequences of these lengths."""
    pages = [-(-length // PAGE_SIZE) for length in lengths]
    indptr = torch.tensor([0, *torch.tensor(pages).cumsum(0).tolist()], dtype=torch.int32)
    order = torch.randperm(NUM_PAGES, generator=torch.Generator().manual_seed(0))
    indices = order[: sum(pages)].to(torch.int32)
    last = torch.tensor([(length - 1) % PAGE_SIZE + 1 for length in lengths], dtype=torch.int32)
    return indptr, indices, last


def main() -> None:
    device = os.environ.get("DEMO_DEVICE", "cpu")
    torch.manual_seed(0)
    cache = torch.randn(
        NUM_PAGES, 2, NUM_KV_HEADS, PAGE_SIZE, HEAD_DIM, dtype=torch.bfloat16, device=device
    )
    norm_weight = torch.ones(NUM_QO_HEADS * HEAD_DIM, dtype=torch.bfloat16, device=device)
    attention = kernlib.PagedDecode(NUM_QO_HEADS, NUM_KV_HEADS, HEAD_DIM, PAGE_SIZE)
    lengths = list(LENGTHS)
    for step in range(1, 6):
        lengths = [length + 1 for length in lengths]
        indptr, indices, last = (part.to(device) for part in page_table(lengths))
        if step == SPOILT_STEP:
            indices[SPOILT_ENTRY] = SPOILT_PAGE  # what a bug in a scheduler would do
        hidden = torch.randn(
            len(lengths), NUM_QO_HEADS * HEAD_DIM, dtype=torch.bfloat16, device=device
        )
        q = kernlib.rms_norm(hidden, norm_weight).view(-1, NUM_QO_HEADS, HEAD_DIM)
        attention.plan(indptr, indices, last)
        out = attention.run(q, cache)
        print(f"step {step}: {len(lengths)} sequences, output norm {float(out.norm()):.3f}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
