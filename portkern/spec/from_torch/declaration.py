"""How a file says that a function or a module of its is an operator::

    import portkern

    @portkern.operator(inputs=lambda: [torch.randn(32, 128), torch.randn(128)])
    def scaled(x, weight):
        return x * weight

Sizes are examples; which of them may vary is found out. A file may declare several. Where there are
inputs of several sizes, ``cases`` gives all of them: one is the example, the others become
workloads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from portkern.errors import ConfigError

T = TypeVar("T", bound=Callable[..., Any])
#: Where the declaration is kept on what it is of.
ATTRIBUTE = "__portkern_operator__"


@dataclass(frozen=True)
class OperatorDeclaration:
    """``inputs`` gives the example inputs; ``arguments`` construct a module. ``cases``: lists of
    inputs, of which the example is one."""

    inputs: Callable[[], Sequence[object]]
    arguments: Sequence[object] = ()
    cases: Callable[[], Sequence[Sequence[object]]] | None = None

    @classmethod
    def of_cases(
        cls, cases: Callable[[], Sequence[Sequence[object]]], arguments: Sequence[object] = ()
    ) -> OperatorDeclaration:
        return cls(lambda: example_of(cases()), arguments, cases)


def example_of(cases: Sequence[Sequence[object]]) -> Sequence[object]:
    """The first of those that most others are like, but for sizes. IndexError of none."""
    kinds = [tuple(map(_kind, case)) for case in cases]
    most = Counter(kinds).most_common(1)[0][0]
    return cases[kinds.index(most)]


def _kind(value: Any) -> tuple[object, ...]:
    if not hasattr(value, "dtype"):
        return (type(value).__name__,)
    return (len(value.shape), "float" if value.is_floating_point() else str(value.dtype))


def operator(
    *,
    inputs: Callable[[], Sequence[object]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    cases: Callable[[], Sequence[Sequence[object]]] | None = None,
    arguments: Sequence[object] = (),
) -> Callable[[T], T]:
    """Declare a function of tensors, or a ``torch.nn.Module`` constructed with ``arguments``.

    ``inputs`` returns example inputs in order: tensors, and Python numbers for parameters that are
    passed by value. ``shapes`` is the short form where all inputs are tensors of floats: their
    sizes by the parameters' names, in order. ``cases`` returns several lists of inputs. Returns
    what it is given, unchanged but for an attribute.
    """
    if [inputs, shapes, cases].count(None) != 2:
        raise ConfigError("portkern.operator takes one of inputs=, shapes= and cases=")

    def drawn() -> list[object]:
        import torch

        return [torch.randn(tuple(sizes)) for sizes in (shapes or {}).values()]

    def declare(declared: T) -> T:
        given = tuple(arguments)
        said = OperatorDeclaration(inputs or drawn, given)
        setattr(declared, ATTRIBUTE, OperatorDeclaration.of_cases(cases, given) if cases else said)
        return declared

    return declare
