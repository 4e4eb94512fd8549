"""The context of a file's translation, as the files around it give it."""

from __future__ import annotations

from dataclasses import dataclass

from portkern.cuda_source.lexer import Macro
from portkern.cuda_source.names import UNDECLARED, DeclaredNames


@dataclass(frozen=True)
class Context:
    """``hip``: of the files that include it or that it includes, those that name a runtime name
    HIP's. ``headers`` are paths, as ``#include`` names them, of headers that are there; ``own`` are
    those of them that the library brings itself. ``macros`` are the values that the library's
    headers define, ``pasting`` their macros that paste names together, ``declared`` what their
    names are of."""

    hip: bool = False
    headers: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    macros: frozenset[str] = frozenset()
    pasting: tuple[Macro, ...] = ()
    declared: DeclaredNames = UNDECLARED


NOTHING_AROUND = Context()
