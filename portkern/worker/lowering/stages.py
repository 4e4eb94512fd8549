"""The stages of a kernel, in order: loops, and the buffers between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import sympy

from portkern.worker.lowering.body import Body, Fold, Index, Kind, Product


@dataclass(frozen=True)
class LoopStage:
    """Loops over ``shape`` that fill ``buffer``. ``write`` says the statements for one index, which
    end in storing what it computed. Of a reduction or a product that is stored, ``fold`` or
    ``product`` says it by its parts, and ``store`` what stores an element. ``work``: what one index
    goes over beyond that."""

    buffer: str
    shape: tuple[sympy.Expr, ...]
    write: Callable[[Body, Index], None]
    fold: Fold | None = None
    product: Product | None = None
    store: Callable[[Body, Index, str], None] | None = None
    work: tuple[sympy.Expr, ...] = ()


@dataclass(frozen=True)
class StageBuffer:
    name: str
    kind: Kind
    shape: tuple[sympy.Expr, ...]


@dataclass
class Loops:
    """The loops of a kernel, in order, and its buffers. ``constants``: the texts of the elements
    of each. ``own``: how many axes tell rows apart, for each buffer that holds one row at a
    time."""

    stages: list[LoopStage] = field(default_factory=list)
    buffers: list[StageBuffer] = field(default_factory=list)
    constants: dict[str, tuple[Kind, list[str]]] = field(default_factory=dict)
    own: dict[str, int] = field(default_factory=dict)
