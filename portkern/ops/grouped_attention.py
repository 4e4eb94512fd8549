"""Causal attention as decoders have it: a group of query heads shares the keys of one head, queries
are the last of the sequence, of which keys may be more and may lie within a window of a query's
place, and scores may be capped: softmax(cap tanh(q k' / (cap sqrt(dim)))) v. Without a window or a
cap these are 0. A query without keys gives zeros.

Grouped queries: Ainslie et al., "GQA", 2023; windows: Beltagy et al., "Longformer", 2020; capped
scores: Gemma Team, "Gemma 2", 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops import attention
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, ScalarSpec, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

QUERIES = ("batch", "kv_heads", "group", "queries", "dim")
KEYS = ("batch", "kv_heads", "keys", "dim")


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, softcap: float
) -> torch.Tensor:
    import torch

    queries, keys = q.shape[3], k.shape[2]
    scores = q @ (k / q.shape[4] ** 0.5).mT.unsqueeze(2)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    place = torch.arange(queries, device=q.device)[:, None] + (keys - queries)
    key = torch.arange(keys, device=q.device)
    hidden = key > place
    if window > 0:
        hidden = hidden | (key <= place - window)
    scores = scores.masked_fill(hidden, -torch.inf)
    share = torch.softmax(scores, dim=-1).masked_fill(hidden, 0.0)
    return share @ v.unsqueeze(2)


def framework(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, softcap: float
) -> torch.Tensor:
    """The framework's own attention: its fused one, where that can say the same. It stands alone,
    as its text is what a worker runs."""
    import torch

    queries, keys = q.shape[3], k.shape[2]
    if softcap == 0 and window == 0 and queries in (1, keys):
        y = torch.nn.functional.scaled_dot_product_attention(
            q.flatten(1, 2), k, v, is_causal=queries > 1, enable_gqa=True
        )
        return y.view(q.shape)
    scores = q @ (k / q.shape[4] ** 0.5).mT.unsqueeze(2)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    place = torch.arange(queries, device=q.device)[:, None] + (keys - queries)
    key = torch.arange(keys, device=q.device)
    hidden = key > place
    if window > 0:
        hidden = hidden | (key <= place - window)
    share = torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)
    return share.masked_fill(hidden, 0.0) @ v.unsqueeze(2)


def flops(dims: Mapping[str, int]) -> float:
    """Two products over the keys up to each query's; a window is not taken off."""
    queries, keys = dims["queries"], dims["keys"]
    pairs = queries * max(keys - (queries - 1) / 2, 0.0)
    return dims["batch"] * dims["kv_heads"] * dims["group"] * pairs * (4.0 * dims["dim"] + 4)


SIGNATURE = Signature(
    "grouped_attention",
    axes=("batch", "kv_heads", "group", "queries", "keys", "dim"),
    inputs=(TensorSpec("q", QUERIES), TensorSpec("k", KEYS), TensorSpec("v", KEYS)),
    outputs=(TensorSpec("y", QUERIES),),
    scalars=(ScalarSpec("window", "int64", 0), ScalarSpec("softcap", "float32", 0.0)),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=flops,
    description=__doc__,
    terms=lambda d: d["keys"] + d["dim"],
    shifts=True,
    baseline=framework,
    adversaries={"sharp": attention.sharp, "rising": attention.rising},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[
            (1, 2, 2, 37, 53, 64, 0, 0),
            (1, 1, 2, 64, 64, 96, 20, 0),
            (2, 1, 4, 1, 130, 64, 0, 30),
        ],
        typical=[
            (2, 8, 4, 2048, 2048, 128, 0, 0),
            (16, 8, 4, 1, 8192, 128, 0, 0),
            (1, 4, 2, 2048, 2048, 256, 512, 50),
        ],
        edge=[
            (0, 2, 2, 8, 8, 8, 0, 0),
            (1, 1, 1, 1, 1, 1, 0, 0),
            (2, 1, 3, 5, 3, 24, 0, 0),
            (1, 1, 1, 3, 0, 8, 0, 0),
            (1, 2, 1, 33, 70, 40, 1, 5),
            (1, 1, 8, 2, 300, 256, 100, 0),
            (1, 1, 1, 200, 100, 40, 0, 0),  # whole tiles of queries see no key
        ],
        heldout=[(1, 3, 2, 65, 257, 80, 31, 20), (3, 1, 7, 1, 191, 112, 0, 0)],
        scalars=("window", "softcap"),
    ),
)
