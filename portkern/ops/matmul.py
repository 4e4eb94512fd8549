"""Matrix product."""

from __future__ import annotations

from typing import Any

from portkern.op import Op, Signature, TensorSpec
from portkern.ops._sizes import workloads


def run(a: Any, b: Any) -> Any:
    return a @ b


def cancelling(kind: Any, generator: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """The second half of the products takes away the first, but for a few per cent."""
    half = a.shape[1] // 2
    a = a.to(kind).float()
    b = b.to(kind).float()
    a[:, half : 2 * half] = -a[:, :half]
    b[half : 2 * half] = b[:half] + b[half : 2 * half] / 64
    return a, b


def integers(kind: Any, generator: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Any order of adding is exact in float32; the reduced precisions cannot hold ``a``."""
    import torch

    most = 4095 if kind is torch.float32 else 127
    wide = torch.randint(-most, most + 1, a.shape, generator=generator)
    return wide.float(), torch.randint(-1, 2, b.shape, generator=generator).float()


SIGNATURE = Signature(
    "matmul",
    axes=("m", "n", "k"),
    inputs=(TensorSpec("a", ("m", "k")), TensorSpec("b", ("k", "n"))),
    outputs=(TensorSpec("c", ("m", "n")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 2.0 * d["m"] * d["n"] * d["k"],
    description=__doc__,
    terms=lambda d: d["k"],
    cancels=True,
    adversaries={"cancelling": cancelling, "integers": integers},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(33, 65, 17), (128, 128, 128)],
        typical=[(1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096)],
        edge=[
            (0, 4, 4),
            (4, 4, 0),
            (1, 1, 1),
            (1, 1021, 509),
            (127, 1, 129),
            (70001, 1, 3),
            (3, 70001, 2),
        ],
        heldout=[(257, 383, 191), (613, 769, 1031), (1, 33013, 7)],
    ),
)
