"""A file in Python around kernels over blocks: constants, helpers, and whence it knows axes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from portkern.spec.op import Signature
from portkern.worker.lowering.block_kernels import BlockKernel
from portkern.worker.lowering.operations import Unwritable

FLAT = "BLOCK = 1024  # knob: 256 512 1024 2048 4096\n"
TILE = "TILE = 2048  # knob: 1024 2048 4096 8192\n"
TILES = """\
BLOCK_M = 32  # knob: 16 32 64
BLOCK_N = 32  # knob: 16 32 64 128
BLOCK_K = 32  # knob: 16 32 64
"""
WARPS = "NUM_WARPS = 4  # knob: 1 2 4 8\n"
_NAME = re.compile(r"[A-Za-z_]\w*")


def knobs(kernels: Sequence[BlockKernel]) -> str:
    ways = {kernel.how for kernel in kernels}
    parts = [FLAT] if ways & {"flat", "rows"} else []
    parts += [TILE] if "rows" in ways else []
    parts += [TILES] if "tiles" in ways else []
    return "".join([*parts, WARPS])


def helpers(
    kernels: Sequence[BlockKernel], texts: Mapping[str, str], needs: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """The helpers, each after those that it calls."""
    called = set().union(*(kernel.called for kernel in kernels))
    wanted = called | {one for name in called for one in needs.get(name, ())}
    first = [one for several in needs.values() for one in several]
    for name in sorted(texts, key=lambda name: name not in first):
        if name in wanted:
            yield texts[name] + "\n"


def axes(signature: Signature, texts: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    """Lines that define the axes used in ``texts``, from the shapes of tensors that are
    ``known``."""
    used = set(_NAME.findall("\n".join(texts)))
    tensors = [t for t in (*signature.inputs, *signature.outputs) if t.name in known]
    for axis in signature.axes:
        if axis not in used:
            continue
        place = next(
            (f"{t.name}.shape[{t.shape.index(axis)}]" for t in tensors if axis in t.shape), None
        )
        if place is None:
            raise Unwritable(f"the axis {axis}, which no input has")
        yield f"    {axis} = {place}"
