"""A file's graph in parts that have a plain form, traced at several numbers at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch  # noqa: TID253 - imported where a graph is written, in a worker
from torch.export import ExportedProgram  # noqa: TID253
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: TID253

from portkern.spec.op import Scalar
from portkern.worker.lowering.following import Numbers, merged
from portkern.worker.lowering.lengths import Lengths
from portkern.worker.lowering.operations import Unwritable
from portkern.worker.lowering.readings import Reading, read
from portkern.worker.tracing import symbols
from portkern.worker.tracing.trace import TracedGraph

#: The least values of each number, beside the one of the file: a line goes through two points.
_LEAST = 3


@dataclass(frozen=True)
class Traces:
    """``points``: what the numbers are in each of the ``programs``; the first is the file's."""

    lengths: Lengths
    symbols: Mapping[str, sympy.Symbol]
    points: Sequence[Mapping[str, Scalar]]
    programs: Sequence[ExportedProgram]

    @classmethod
    def of(cls, traced: TracedGraph, lengths: Lengths, table: object) -> Traces:
        """Raises Unwritable where there are numbers that cannot be changed."""
        retracing = traced.retracing
        points, programs = [retracing.numbers], [_parted(traced.program, table)]
        for numbers, program in retracing.others() if retracing.numbers else ():
            points.append(dict(numbers))
            programs.append(_parted(program, table))
        return cls(lengths, retracing.symbols, points, programs)

    def merged(self) -> tuple[list[Reading], Mapping[str, torch.Tensor]]:
        """The nodes, and the tensors that placeholders stand for, by name. Raises Unwritable."""
        first = self.programs[0]
        constants = _constants(first)
        if not self.symbols:
            return read(first, self.lengths), constants
        graphs, points = [], []
        for point, program in zip(self.points, self.programs, strict=True):
            known = {} if program is first else _same_lengths(first, program, self.lengths)
            if known is None:
                continue
            _check_same(constants, _constants(program))
            lengths = self.lengths if program is first else Lengths({}, known)
            graphs.append(read(program, lengths))
            points.append(point)
        self._check_enough(points)
        return merged(graphs, Numbers(self.symbols, points)), constants

    def _check_enough(self, points: Sequence[Mapping[str, Scalar]]) -> None:
        for name, value in points[0].items():
            others = {point[name] for point in points} - {value}
            if len(others) < (1 if isinstance(value, bool) else _LEAST):
                raise Unwritable(
                    f"a number that it cannot be traced without ({name}: {value}, and "
                    f"{', '.join(map(str, others)) or 'nothing else'})"
                )


def _parted(program: ExportedProgram, table: object) -> ExportedProgram:
    """Attention as products and a softmax: its fused form takes values to be as wide as keys."""
    with sdpa_kernel(SDPBackend.MATH):
        parts: ExportedProgram = program.run_decompositions(table)
    return parts


def _constants(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The constants whose values are read."""
    read = {node.name for node in program.graph.find_nodes(op="placeholder") if _is_read(node)}
    signature = program.graph_signature
    names = {
        **signature.inputs_to_lifted_tensor_constants,
        **signature.inputs_to_buffers,
        **signature.inputs_to_parameters,
    }
    tensors = {**program.constants, **program.state_dict}
    known = {node: tensors.get(name) for node, name in names.items() if node in read}
    return {node: one for node, one in known.items() if isinstance(one, torch.Tensor)}


def _is_read(node: torch.fx.Node) -> bool:
    """Whether values of it are, and not its sizes alone: what is written to as a whole has some
    that nobody sees."""
    for user in node.users:
        packet = getattr(user.target, "overloadpacket", None)
        name = packet.__name__ if packet is not None else ""
        if name.endswith("_like") or name.startswith("new_"):
            continue
        if name == "copy" and user.args[0] is node and node not in user.args[1:]:
            continue
        if name != "clone" or _is_read(user):
            return True
    return False


def _check_same(first: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in first.items():
        again = other.get(name)
        if again is None or again.shape != tensor.shape or not torch.equal(again, tensor):
            raise Unwritable(f"a constant that is another one at other sizes ({name})")


def _same_lengths(
    first: ExportedProgram, other: ExportedProgram, lengths: Lengths
) -> dict[sympy.Symbol, sympy.Expr] | None:
    """The other's symbols as the first has them; None where torch saw a length as fixed, or as
    another's, that is free in the first."""
    known: dict[sympy.Symbol, sympy.Expr] = {}
    for mine, its in zip(_shapes(first), _shapes(other), strict=True):
        for length, again in zip(mine, its, strict=True):
            own, size = lengths.of(length), symbols.size_of(again)
            if isinstance(size, sympy.Integer) and own.free_symbols:
                return None
            if isinstance(size, sympy.Symbol):
                fixed = isinstance(own, sympy.Integer)
                own = sympy.Integer(again.node.hint) if fixed else own
                if known.setdefault(size, own) != own:
                    return None
    return known


def _shapes(program: ExportedProgram) -> list[Sequence[Any]]:
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    return [value.shape for value in values if isinstance(value, torch.Tensor)]
