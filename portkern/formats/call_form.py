"""Text in Python and C++ with which a function of tensors checks its arguments before a kernel
gets their pointers: the length of each axis, and that every input has the sizes, dtype and
device that go with them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from portkern.formats.exported import NoSuchForm
from portkern.formats.leading_axis import leading_axis
from portkern.ops.formulas import FORMULAS
from portkern.spec.expression import Expression
from portkern.spec.op import CELL, Op, Signature, TensorSpec

#: Names in the text that are not the operator's.
LEAD = "portkern_lead"
LENGTHS, CHECKED = "portkern_lengths", "portkern_checked"
_CPP_FUNCTIONS = """\
static void portkern_take(const char* name, const torch::Tensor& t,
                          const std::vector<int64_t>& sizes, torch::ScalarType kind,
                          const torch::Tensor& first) {
    TORCH_CHECK(t.sizes().equals(sizes), name, " is of sizes ", t.sizes(), ", expected ",
                c10::IntArrayRef(sizes), "; lengths of one axis have to agree");
    TORCH_CHECK(t.scalar_type() == kind, name, " is of ", t.scalar_type(), ", expected ", kind);
    TORCH_CHECK(t.device() == first.device(), name, " is on ", t.device(), ", expected ",
                first.device(), " as the first input is");
    TORCH_CHECK(t.layout() == torch::kStrided && !t.is_neg() && t.is_contiguous(), name,
                " is not contiguous; call .contiguous() on it");
    TORCH_CHECK(t.numel() <= INT32_MAX, name, " has ", t.numel(),
                " elements; the kernel was not evaluated on more than ", INT32_MAX);
    TORCH_CHECK(!(torch::GradMode::is_enabled() && t.requires_grad()) && !t._fw_grad(0).defined(),
                name, " requires a gradient, and the kernel has none; call it under "
                "torch.no_grad() or on a detached tensor");
}
"""
_FLOOR = """\
static int64_t portkern_floor(int64_t a, int64_t b) {
    TORCH_CHECK(b != 0, "a length is divided by 0");
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
"""


@dataclass(frozen=True)
class CallForm:
    """``bound`` are axes with the input and the place, counted from its end, where each is read;
    ``derived`` those that follow. ``lead`` is the axis that may be several dimensions. ``limits``
    are conditions on scalars and lengths, in words that Python and C++ share, without which no
    workload of the operator is: a kernel was evaluated on nothing else."""

    signature: Signature
    bound: Mapping[str, tuple[TensorSpec, int]]
    derived: Mapping[str, Expression]
    lead: str | None
    limits: tuple[str, ...] = ()

    @classmethod
    def of(cls, op: Op) -> CallForm:
        """Raises NoSuchForm where a length follows by a rule that is not a text."""
        ships = op.name in FORMULAS and not (op.file or op.definition)
        signature = op.signature
        lengths = dict(getattr(op.derived, "parts", ()))
        if ships and not lengths:
            lengths = {a: Expression(text) for a, text in FORMULAS[op.name].lengths.items()}
        bound: dict[str, tuple[TensorSpec, int]] = {}
        for tensor in signature.inputs:
            for place, axis in enumerate(tensor.shape):
                if isinstance(axis, str):
                    bound.setdefault(axis, (tensor, place - len(tensor.shape)))
        derived = {axis: said for axis, said in lengths.items() if axis not in bound}
        for axis in signature.axes:
            if axis not in bound and axis not in derived:
                raise NoSuchForm(
                    f"the length of its axis {axis!r} follows by a rule that is not text"
                )
        limits = (*_least(op), *(FORMULAS[op.name].limits if ships else ()))
        return cls(signature, bound, derived, leading_axis(op), limits)

    @property
    def indices(self) -> list[tuple[TensorSpec, int, str]]:
        """Inputs that point into others, with the bounds of what they hold."""
        found = []
        for tensor in self.signature.inputs:
            low, high = tensor.within or (0, 0)
            if isinstance(high, str):
                found.append((tensor, low, high))
        return found

    def leads(self, tensor: TensorSpec) -> bool:
        return self.lead is not None and tensor.shape[:1] == (self.lead,)

    @property
    def first(self) -> str:
        return self.signature.inputs[0].name

    # ---- Python

    def python(self, dtypes: Sequence[str]) -> str:
        """Functions :data:`LENGTHS`, of the leading dimensions and the axes in their order, and
        :data:`CHECKED`, which raises for what a kernel cannot take."""
        signature = self.signature
        taken = ", ".join(
            [*(t.name for t in signature.inputs), *(s.name for s in signature.scalars)]
        )
        lines = [f"def {LENGTHS}({taken}):", *(f"    {line}" for line in self._python_lengths())]
        cell = next((t.name for t in signature.inputs if t.dtype == CELL), "")
        kinds = ", ".join(f"torch.{dtype}" for dtype in dtypes)
        named = [f'("{t.name}", {t.name}, {self._python_kind(t, cell)})' for t in signature.inputs]
        lines += ["", "", f"def {CHECKED}({', '.join(t.name for t in signature.inputs)}):"]
        if cell:
            told = f"{cell} is of {{{cell}.dtype}}, the kernel was evaluated in {', '.join(dtypes)}"
            lines.append(f"    if {cell}.dtype not in ({kinds},):")
            lines.append(f'        raise TypeError(f"{told}")')
        lines.append(f"    for name, one, kind in ({', '.join(named)},):")
        return "\n".join(lines) + "\n" + _PYTHON_CHECKS.replace("FIRST", self.first)

    @staticmethod
    def _python_kind(tensor: TensorSpec, cell: str) -> str:
        return f"{cell}.dtype" if tensor.dtype == CELL else f"torch.{tensor.dtype}"

    def _python_lengths(self) -> Iterator[str]:
        for tensor in self.signature.inputs:
            rank = len(tensor.shape)
            wrong = f"{tensor.name}.dim() < {rank - 1}" if self.leads(tensor) else ""
            wrong = wrong or f"{tensor.name}.dim() != {rank}"
            expected = f"{rank - 1} or more" if self.leads(tensor) else str(rank)
            yield f"if {wrong}:"
            yield (
                f'    raise ValueError(f"{tensor.name} has {{{tensor.name}.dim()}} dimensions, '
                f'expected {expected}")'
            )
        yield f"{LEAD} = ()"
        for axis, (tensor, place) in self.bound.items():
            if axis == self.lead:
                rest = len(tensor.shape) - 1
                yield f"{LEAD} = tuple({tensor.name}.shape[: {tensor.name}.dim() - {rest}])"
                yield f"{axis} = 1"
                yield f"for length in {LEAD}:"
                yield f"    {axis} *= length"
            else:
                yield f"{axis} = {tensor.name}.shape[{place}]"
        for limit in self.limits:
            yield f"if not ({limit}):"
            yield f'    raise ValueError("expected {limit}")'
        for axis, said in self.derived.items():
            yield f"{axis} = int({said.text})"
            yield f"if {axis} < 1:"
            yield f'    raise ValueError(f"{axis} would be {{{axis}}}, expected 1 or more")'
        for tensor in self.signature.inputs:
            yield f"if tuple({tensor.name}.shape) != {self.python_sizes(tensor)}:"
            yield (
                f'    raise ValueError(f"{tensor.name} is of sizes {{tuple({tensor.name}.shape)}}, '
                f'expected {{{self.python_sizes(tensor)}}}; lengths of one axis have to agree")'
            )
        yield f"return {', '.join([LEAD, *self.signature.axes])}"

    def python_indices(self) -> Iterator[str]:
        """Statements that end where an index leads out of a tensor; on a GPU the device looks, and
        the kernel behind it does not run."""
        for tensor, low, high in self.indices:
            name = tensor.name
            yield (
                f"torch._assert_async((({name} >= {low}) & ({name} < {high})).all(), "
                f'"{name} has values that are not from {low} to {high} - 1")'
            )

    def python_sizes(self, tensor: TensorSpec, *, flat: bool = False) -> str:
        """A tuple; ``flat``: with the leading axis as one dimension, as a kernel sees it."""
        leads = self.leads(tensor) and not flat
        parts = [f"*{LEAD}"] * leads + [str(axis) for axis in tensor.shape[leads:]]
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"

    # ---- C++

    @property
    def cpp_functions(self) -> str:
        return _CPP_FUNCTIONS + (_FLOOR if self.derived else "")

    def cpp(self, kinds: Mapping[str, str]) -> list[str]:
        """Statements that bind each axis to its length and refuse what the kernel cannot take.
        Inputs are called ``NAME_``; ``kinds`` are their torch dtypes by name. Raises NoSuchForm."""
        lines = []
        for tensor in self.signature.inputs:
            name, rank = f"{tensor.name}_", len(tensor.shape)
            least = rank - 1 if self.leads(tensor) else rank
            sign, more = (">=", " or more") if self.leads(tensor) else ("==", "")
            lines.append(
                f'TORCH_CHECK({name}.dim() {sign} {least}, "{tensor.name} has ", {name}.dim(), '
                f'" dimensions, expected {least}{more}");'
            )
        for axis, (tensor, place) in self.bound.items():
            name = f"{tensor.name}_"
            if axis == self.lead:
                lines += [
                    f"const auto {LEAD} = {name}.sizes().slice(0, {name}.dim() - "
                    f"{len(tensor.shape) - 1});",
                    f"int64_t {axis} = 1;",
                    f"for (const int64_t length : {LEAD}) {axis} *= length;",
                ]
            else:
                lines.append(f"const int64_t {axis} = {name}.size({place});")
        lines += [f'TORCH_CHECK({limit}, "expected {limit}");' for limit in self.limits]
        for axis, said in self.derived.items():
            lines.append(f"const int64_t {axis} = {cpp_expression(said)};")
            lines.append(
                f'TORCH_CHECK({axis} >= 1, "{axis} would be ", {axis}, ", expected 1 or more");'
            )
        if self.lead:
            lines += [
                "const auto portkern_deep = [&](std::vector<int64_t> rest) {",
                f"    rest.insert(rest.begin(), {LEAD}.begin(), {LEAD}.end());",
                "    return rest;",
                "};",
            ]
        lines += [
            f'portkern_take("{tensor.name}", {tensor.name}_, {self.cpp_sizes(tensor)}, '
            f"{kinds[tensor.name]}, {self.first}_);"
            for tensor in self.signature.inputs
        ]
        for tensor, low, high in self.indices:  # on a GPU the device looks, ahead of the kernel
            name = tensor.name
            lines.append(
                f"at::_assert_async(at::logical_and({name}_.ge({low}), {name}_.lt({high})).all(), "
                f'"{name} has values that are not from {low} to {high} - 1");'
            )
        return lines

    def cpp_sizes(self, tensor: TensorSpec) -> str:
        leads = self.leads(tensor)
        inner = "{" + ", ".join(map(str, tensor.shape[leads:])) + "}"
        return f"portkern_deep({inner})" if leads else f"std::vector<int64_t>{inner}"


def _least(op: Op) -> Iterator[str]:
    """The least of each whole number that a workload has, or 1: 0 has a meaning where one has
    it."""
    several = [op.signature.scalar_values(w.scalars) for ws in op.workloads.values() for w in ws]
    for scalar in op.signature.scalars:
        if scalar.dtype == "int64" and several:
            yield f"{scalar.name} >= {min(1, *(int(one[scalar.name]) for one in several))}"


_PYTHON_CHECKS = """\
        if one.dtype != kind:
            raise TypeError(f"{name} is of {one.dtype}, expected {kind}")
        if one.device != FIRST.device:
            raise ValueError(f"{name} is on {one.device}, expected {FIRST.device}")
        if one.numel() > 2**31 - 1:
            raise ValueError(
                f"{name} has {one.numel()} elements; the kernel was not evaluated on more than "
                f"{2**31 - 1}"
            )
        if not one.is_contiguous():
            raise ValueError(f"{name} is not contiguous; call .contiguous() on it")
        if torch.is_grad_enabled() and one.requires_grad:
            raise RuntimeError(
                f"{name} requires a gradient, and the kernel has none; call it under "
                "torch.no_grad() or on a detached tensor"
            )
        if torch.compiler.is_compiling():
            continue
        if torch.autograd.forward_ad.unpack_dual(one).tangent is not None:
            raise RuntimeError(f"{name} has a forward gradient, and the kernel has none")
"""


def cpp_expression(said: Expression) -> str:
    """Whole-number arithmetic in C++. Raises NoSuchForm for what is not."""
    return _cpp(ast.parse(said.text.strip(), mode="eval").body, said.text)


def _cpp(node: ast.expr, text: str) -> str:
    match node:
        case ast.Constant(value=int() as value):
            return f"int64_t({value})"
        case ast.Name(id=name):
            return name
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return f"(-{_cpp(inner, text)})"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as sign, right=right):
            mark = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}[type(sign)]
            return f"({_cpp(left, text)} {mark} {_cpp(right, text)})"
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return f"portkern_floor({_cpp(left, text)}, {_cpp(right, text)})"
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            over, under = _cpp(left, text), _cpp(right, text)
            return f"({over} - portkern_floor({over}, {under}) * {under})"
        case ast.Call(func=ast.Name(id=("max" | "min") as name), args=[left, right]):
            return f"std::{name}<int64_t>({_cpp(left, text)}, {_cpp(right, text)})"
    raise NoSuchForm(f"a length is {text[:60]!r}, which is not arithmetic of whole numbers")
