"""References in float64 by other formulas, and the tensors to try operators on."""

import math
from dataclasses import dataclass

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

#: Half a unit in the last place of a result that is rounded once, and a little of float32's own.
ROUNDING = {torch.float32: 4e-6, torch.float16: 1.05 * 2**-11, torch.bfloat16: 1.05 * 2**-8}

#: How a tensor lies in its storage.
VIEWS = ("dense", "slice", "heads", "padded")


def name(dtype):
    return str(dtype).removeprefix("torch.")


def fresh(shape, dtype, device, view="dense", *, fill=None):
    """Return random numbers (or ``fill``) of a shape, as a view of a larger storage.

    ``slice`` starts at an odd element, ``heads`` is one of three parts of a fused projection and
    has two row strides, ``padded`` keeps rows at multiples of 16 bytes.
    """
    *lead, width = shape
    if view == "dense":
        return _numbers(shape, dtype, device, fill)
    if view == "slice":
        return _numbers((*lead, width + 5), dtype, device, fill)[..., 3 : 3 + width]
    if view == "padded":
        return _numbers((*lead, width + 16 - width % 8), dtype, device, fill)[..., :width]
    if len(lead) > 1:
        return _numbers((lead[0], 3, *lead[1:], width), dtype, device, fill)[:, 1]
    return _numbers((*lead, 3, width), dtype, device, fill)[..., 1, :]


def _numbers(shape, dtype, device, fill):
    if fill is not None:
        return torch.full(shape, fill, dtype=dtype, device=device)
    return torch.randn(shape, dtype=torch.float32).to(device, dtype)


def poisoned(shape, dtype, device, view="dense"):
    return fresh(shape, dtype, device, view, fill=math.nan)


def assert_rounded(actual, expected):
    """Assert that ``actual`` is the float64 ``expected``, rounded to its dtype once."""
    assert expected.dtype == torch.float64
    torch.testing.assert_close(
        actual.double(), expected.to(actual.device), rtol=ROUNDING[actual.dtype], atol=2e-6
    )


def rms_norm(x, weight, eps):
    x, weight = x.double(), weight.double()
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * weight * torch.rsqrt(size**2 / x.shape[-1] + eps)


def silu_and_mul(x):
    gate, up = x.double().chunk(2, dim=-1)
    return gate * torch.sigmoid(gate) * up


@dataclass(frozen=True)
class Pages:
    """A page table on a device and the lengths it stands for."""

    lengths: tuple[int, ...]
    page_size: int
    indptr: torch.Tensor
    indices: torch.Tensor
    last_page_len: torch.Tensor
    num_pages: int

    def lists(self):
        return self.indptr, self.indices, self.last_page_len

    def place(self, sequence, position):
        """Return page and slot of a token."""
        ordinal = int(self.indptr[sequence]) + position // self.page_size
        return int(self.indices[ordinal]), position % self.page_size


def pages_for(lengths, page_size, device):
    """Return a page table in random order, with pages to spare and slack in the index list."""
    counts = [-(-length // page_size) for length in lengths]
    num_pages = sum(counts) + 3
    order = torch.randperm(num_pages)[: sum(counts)].tolist()
    slack = [2**31 - 1]  # beyond indptr[-1]; never read
    last = [
        length - (count - 1) * page_size if count else 0
        for length, count in zip(lengths, counts, strict=True)
    ]
    lists = [[0, *torch.tensor(counts).cumsum(0).tolist()], order + slack, last]
    tensors = [torch.tensor(values, dtype=torch.int32, device=device) for values in lists]
    return Pages(tuple(lengths), page_size, *tensors, num_pages)


def gather(kv_cache, pages, sequence):
    """Return K and V of a sequence: float64 [tokens, num_kv_heads, head_dim] each."""
    places = [pages.place(sequence, at) for at in range(pages.lengths[sequence])]
    rows = [kv_cache[page, :, :, slot] for page, slot in places]
    both = torch.stack(rows).double().cpu()
    return both[:, 0], both[:, 1]


def paged_decode(q, kv_cache, pages, scale):
    """Return outputs and log-sum-exp in float64."""
    q = q.double().cpu()
    group = q.shape[1] // kv_cache.shape[2]
    out, lse = torch.zeros_like(q), torch.full(q.shape[:2], -math.inf, dtype=torch.float64)
    for sequence, length in enumerate(pages.lengths):
        if not length:
            continue
        keys, values = gather(kv_cache, pages, sequence)
        keys, values = (part.repeat_interleave(group, dim=1) for part in (keys, values))
        scores = torch.einsum("hd,thd->ht", q[sequence], keys) * scale
        lse[sequence] = torch.logsumexp(scores, dim=-1)
        out[sequence] = torch.einsum("ht,thd->hd", torch.softmax(scores, dim=-1), values)
    return out, lse
