"""What a kernel does, in order: loops, and the buffers between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import sympy

from portkern.worker.lowering.body import Body, Index, Kind


@dataclass(frozen=True)
class Stage:
    """Loops over ``shape`` that fill ``buffer``. ``write`` says the statements for one index, which
    end in storing what it computed."""

    buffer: str
    shape: tuple[sympy.Expr, ...]
    write: Callable[[Body, Index], None]


@dataclass(frozen=True)
class Buffer:
    name: str
    kind: Kind
    shape: tuple[sympy.Expr, ...]


@dataclass
class Loops:
    """What a kernel does, in order. ``constants``: the texts of their elements."""

    stages: list[Stage] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    constants: dict[str, tuple[Kind, list[str]]] = field(default_factory=dict)
