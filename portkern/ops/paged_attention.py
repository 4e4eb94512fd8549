"""Attention of one query per sequence, as in decoding, over keys and values that lie in pages: a
table says which pages a sequence has, in the order of its positions, and lengths how many positions
of them count. A group of query heads shares the keys of one head. A sequence of length 0 gives
zeros; what lies in pages beyond a length may be anything.

Pages are (pages, page, kv_heads, dim), as vLLM and FlashAttention have them (Kwon et al.,
"Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import ITEMSIZE, Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

QUERY = ("seqs", "kv_heads", "group", "dim")
PAGES = ("pages", "page", "kv_heads", "dim")


def run(
    q: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    import torch

    keys, values = (
        pages[table.long()].flatten(1, 2).transpose(1, 2) for pages in (key_pages, value_pages)
    )
    hidden = (torch.arange(keys.shape[2], device=q.device) >= lengths[:, None])[:, None, None]
    keys, values = (one.masked_fill(hidden.mT, 0.0) for one in (keys, values))
    scores = (q @ (keys / q.shape[3] ** 0.5).mT).masked_fill(hidden, -torch.inf)
    return torch.softmax(scores, dim=-1).masked_fill(hidden, 0.0) @ values


def framework(
    q: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    """The framework's fused attention, of pages that are put together first."""
    import torch

    keys = key_pages[table.long()].flatten(1, 2).transpose(1, 2)
    values = value_pages[table.long()].flatten(1, 2).transpose(1, 2)
    seen = torch.arange(keys.shape[2], device=q.device) < lengths[:, None]
    y = torch.nn.functional.scaled_dot_product_attention(
        q.flatten(1, 2).unsqueeze(2), keys, values, attn_mask=seen[:, None, None], enable_gqa=True
    )
    return y.view(q.shape)


def sharp(
    kind: torch.dtype, generator: torch.Generator, q: torch.Tensor, *others: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Scores of some hundreds: one key has nearly all weight, powers overflow without a maximum."""
    return q * 30, *others


def rising(
    kind: torch.dtype,
    generator: torch.Generator,
    q: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Every page outweighs those before it, so that a running maximum changes all the way."""
    import torch

    step = torch.linspace(0, 30, max(key_pages.shape[0], 1))[:, None, None, None]
    return q.abs(), key_pages.abs() * step, value_pages, table.sort(1).values, lengths


def stale(
    kind: torch.dtype,
    generator: torch.Generator,
    q: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Lengths around whole pages, and what no sequence has is not a number, as memory may be that
    nobody has written yet: a weight of 0 does not hide it."""
    import torch

    page, capacity = key_pages.shape[1], table.shape[1] * key_pages.shape[1]
    whole = torch.randint(0, table.shape[1] + 1, lengths.shape, generator=generator) * page
    around = torch.randint(-1, 2, lengths.shape, generator=generator)
    lengths = (whole + around).clamp(0, capacity)
    place = torch.arange(capacity)
    at = table[:, place // page] * page + place % page if capacity else table
    unused = torch.ones(key_pages.shape[0] * page, dtype=torch.bool)
    unused[at[place < lengths[:, None]]] = False
    of_pages = unused.view(key_pages.shape[:2])[:, :, None, None]
    key_pages = key_pages.masked_fill(of_pages, torch.nan)
    return q, key_pages, value_pages.masked_fill(of_pages, torch.nan), table, lengths


def flops(dims: Mapping[str, int]) -> float:
    """Two products over the keys of every sequence, which has half of what its pages hold."""
    heads = dims["seqs"] * dims["kv_heads"] * dims["group"]
    return heads * dims["slots"] * dims["page"] / 2 * (4.0 * dims["dim"] + 4)


def reads(dims: Mapping[str, int], dtype: str) -> int:
    """The queries, the table, and the pages that half of its entries name when drawn: of v pages
    v (1 - (1 - 1/v)^n)."""
    pages, named = dims["pages"], dims["seqs"] * dims["slots"]
    drawn = pages * (1 - (1 - 1 / pages) ** (named / 2)) if pages else 0
    row = dims["kv_heads"] * dims["dim"]
    elements = dims["seqs"] * dims["group"] * row + 2 * int(drawn * dims["page"]) * row
    return elements * ITEMSIZE[dtype] + (named + dims["seqs"]) * ITEMSIZE["int32"]


SIGNATURE = Signature(
    "paged_attention",
    axes=("seqs", "kv_heads", "group", "dim", "pages", "page", "slots"),
    inputs=(
        TensorSpec("q", QUERY),
        TensorSpec("key_pages", PAGES),
        TensorSpec("value_pages", PAGES),
        TensorSpec("table", ("seqs", "slots"), "int32", within=(0, "pages")),
        TensorSpec("lengths", ("seqs",), "int32", within=(0, "slots * page + 1")),
    ),
    outputs=(TensorSpec("y", QUERY),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=flops,
    description=__doc__,
    terms=lambda d: d["slots"] * d["page"] + d["dim"],
    shifts=True,
    reads=reads,
    baseline=framework,
    adversaries={"sharp": sharp, "rising": rising, "stale": stale},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(3, 2, 2, 40, 7, 16, 3), (4, 2, 4, 64, 19, 16, 6)],
        typical=[
            (16, 8, 4, 128, 8192, 16, 512),
            (64, 8, 4, 128, 4096, 16, 64),
            (1, 8, 4, 128, 2048, 16, 2048),
        ],
        edge=[
            (0, 2, 2, 8, 4, 4, 2),
            (1, 1, 1, 1, 1, 1, 1),
            (2, 1, 2, 8, 3, 4, 0),
            (2, 1, 3, 27, 5, 3, 4),
            (2, 2, 1, 40, 11, 16, 70),
            (1, 1, 8, 256, 40, 8, 37),
        ],
        heldout=[(3, 1, 7, 112, 19, 16, 9), (2, 3, 5, 80, 13, 32, 6)],
    ),
)
