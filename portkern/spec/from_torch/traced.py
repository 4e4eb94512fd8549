"""Results of tracing a file: plain values, as they come out of the worker that loaded it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Scalar = float | int | bool

#: How an input's values are made of those of a distribution: as they are; by fan-in, as layers
#: initialise weights; around one, as scales of norms are; at least zero, as variances are; between
#: 0 and 1, as probabilities are; as the file makes an argument or its constructor a buffer.
Draws = Literal["", "fan_in", "scale", "positive", "unit", "own"]

#: What an operator that has no right answer does, in the words of its refusal.
RANDOM = "draws random numbers"

How = Literal["all sizes", "sizes of inputs", "no size"]


@dataclass(frozen=True)
class TracedTensor:
    """``shape``: lengths, and names of axes. ``state``: the parameter or buffer of the module that
    it stands for, empty of an argument."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    within: tuple[int, int | str] | None = None
    state: str = ""
    draws: Draws = ""


@dataclass(frozen=True)
class TracedScalar:
    name: str
    dtype: Literal["float32", "int64", "bool"]
    default: Scalar


@dataclass(frozen=True)
class Argument:
    """An argument that the function or module is called with, in order: an input or a scalar by
    name, or a value that the file fixes, as Python says it."""

    name: str = ""
    value: str = ""


@dataclass(frozen=True)
class Traced:
    """An operator of a file. ``axes``: their lengths in the file; ``derived``: those that follow;
    ``requires``: what lengths must fulfil; ``reads``: of inputs that are read in part, the
    elements.

    ``how``: which sizes tracing could let vary. ``only``: whether it is the file's only operator;
    ``module``: whether it is a module's forward. ``changes_itself``: calls change the module beyond
    its buffers. ``uniform``: inputs that it draws from 0 to 1. ``constants``: axes whose length the
    file's own number of that name fixes, which the constructor takes. ``beside``: by axis, numbers
    that places along it are compared with.
    """

    name: str
    operator: str
    only: bool
    module: bool
    how: How
    axes: Mapping[str, int]
    derived: Mapping[str, str]
    requires: tuple[str, ...]
    inputs: tuple[TracedTensor, ...]
    outputs: tuple[TracedTensor, ...]
    scalars: tuple[TracedScalar, ...]
    arguments: tuple[Argument, ...]
    dtypes: tuple[str, ...]
    flops: str
    reads: Mapping[str, str]
    adversaries: tuple[str, ...]
    workloads: Mapping[str, tuple[Mapping[str, int], ...]]
    changes_itself: bool = False
    uniform: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    beside: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Untraceable:
    """Why a file has no operator that can be had from it; ``line`` in the file, 0 if nowhere."""

    problem: str
    line: int = 0
    text: str = ""


@dataclass(frozen=True)
class PlainKernel:
    """Sources of kernels that were written from the graph of a file's operator, each in pieces:
    the plain one, then others that do the same in other ways; or why there are none."""

    sources: tuple[tuple[str, ...], ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Tracing:
    """The outcome of tracing what is asked for: one of the two. ``operators``: all names that
    the file has."""

    traced: Traced | None = None
    untraceable: Untraceable | None = None
    operators: tuple[str, ...] = field(default=())
