"""Blocks of elements as Triton writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from portkern.worker.lowering.body import Kind
from portkern.worker.lowering.lanes import LoweredLanes, Term

DTYPES: Final[Mapping[Kind, str]] = {
    "bool": "tl.int1",
    "int64_t": "tl.int64",
    "float": "tl.float32",
    "double": "tl.float64",
}
_OWN = "exp exp2 log log2 sin cos sqrt erf floor ceil".split()


class TritonLanes(LoweredLanes):
    language = "Triton"
    barrier = "tl.debug_barrier()"
    integers = (-(2**63), 2**63 - 1)
    functions: Mapping[str, str] = {
        **{name: f"tl.{name}({{0}})" for name in _OWN},
        "log10": "(tl.log({0}) * 0.4342944819032518)",
        "tan": "(tl.sin({0}) / tl.cos({0}))",
        "expm1": "_expm1({0})",
        "log1p": "_log1p({0})",
        "tanh": "_tanh({0})",
        "sinh": "_sinh({0})",
        "cosh": "(0.5 * (tl.exp({0}) + tl.exp(-{0})))",
        "pow": "_pow({0}, {1})",
        "rint": "_rint({0})",
        "trunc": "_trunc({0})",
        "fmod": "({0} - {1} * _trunc({0} / {1}))",
        "fmax": "tl.where(({0} > {1}) | ({1} != {1}), {0}, {1})",
        "fmin": "tl.where(({0} < {1}) | ({1} != {1}), {0}, {1})",
    }

    def convert(self, block: str, kind: Kind) -> str:
        return f"({block}).to({DTYPES[kind]})"

    def full(self, value: Term) -> str:
        if value.spread == "block":
            return value.text
        if value.spread == "number":
            return f"tl.full({self.shape}, {value.text}, {DTYPES[value.kind]})"
        return f"({self.zero} + {value.text}).to({DTYPES[value.kind]})"

    def where(self, condition: Term, yes: Term, no: Term) -> str:
        sides = [yes, no]
        if all(side.spread != "block" for side in sides):
            return f"tl.where({condition.text}, {self.full(yes)}, {self.full(no)})"
        return f"tl.where({condition.text}, {yes.text}, {no.text})"

    def divided(self, sign: str, left: Term, right: Term) -> str:
        return f"({left.text} {'//' if sign == '/' else '%'} {right.text})"

    def load(self, name: str, place: str, kind: Kind) -> str:
        return f"tl.load({name} + {place}, mask={self.mask}, other=0).to({DTYPES[kind]})"

    def store(self, name: str, place: str, value: Term) -> str:
        held = f"({value.text}).to({name}.dtype.element_ty)"
        return f"tl.store({name} + {place}, {held}, mask={self.mask})"

    def begun(self, name: str, kind: Kind) -> None:
        """There is nothing more to it."""

    def in_row(self, name: str, value: Term) -> str:
        self.called.add(name)
        return f"_{name}({value.text}, ROWS, BLOCK)"

    @contextmanager
    def loop(self, counter: str, bound: str, changed: Sequence[str]) -> Iterator[None]:
        self.say(f"for {counter} in range(0, {bound}):")
        with self.deeper():
            yield


#: The helpers by the names of functions that need them, after those that they need themselves.
HELPERS: Final[Mapping[str, str]] = {
    "expm1": """\
@triton.jit
def _expm1(x):
    # What rounding takes from exp(x), its logarithm shows.
    u = tl.exp(x)
    near = (u - 1.0) * x / tl.log(u)
    return tl.where(u == 1.0, x, tl.where((tl.abs(x) > 1.0) | (x != x), u - 1.0, near))
""",
    "log1p": """\
@triton.jit
def _log1p(x):
    u = 1.0 + x
    near = tl.log(u) * (x / (u - 1.0))
    return tl.where(u == 1.0, x, tl.where(tl.abs(x) < 1.0, near, tl.log(u)))
""",
    "tanh": """\
@triton.jit
def _tanh(x):
    t = _expm1(-2.0 * tl.abs(x))
    return tl.where(x < 0, t / (t + 2.0), -t / (t + 2.0))
""",
    "sinh": """\
@triton.jit
def _sinh(x):
    t = _expm1(tl.abs(x))
    half = 0.5 * (t + t / (t + 1.0))
    half = tl.where(tl.abs(x) > 20.0, 0.5 * tl.exp(tl.abs(x)), half)
    return tl.where(x < 0, -half, half)
""",
    "trunc": """\
@triton.jit
def _trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))
""",
    "rint": """\
@triton.jit
def _rint(x):
    # To the even neighbour where both are as near.
    low = tl.floor(x)
    odd = low - 2.0 * tl.floor(low * 0.5)
    up = (x - low > 0.5) | ((x - low == 0.5) & (odd == 1.0))
    return tl.where(up, low + 1.0, low)
""",
    "pow": """\
@triton.jit
def _pow(x, y):
    # In float64: an exponent multiplies what the logarithm has lost.
    wide = y.to(tl.float64)
    power = tl.exp(wide * tl.log(tl.abs(x).to(tl.float64))).to(x.dtype)
    whole = tl.floor(y) == y
    odd = tl.floor(y * 0.5) * 2.0 != y
    signed = tl.where(whole, tl.where(odd, -power, power), float("nan"))
    return tl.where((y == 0) | (x == 1.0), 1.0, tl.where(x < 0, signed, power))
""",
    "row_sum": """\
@triton.jit
def _row_sum(x, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    return tl.broadcast_to(tl.sum(x, 1, keep_dims=True), (ROWS, BLOCK))
""",
    "row_max": """\
@triton.jit
def _row_max(x, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    return tl.broadcast_to(tl.max(x, 1, keep_dims=True), (ROWS, BLOCK))
""",
    "row_min": """\
@triton.jit
def _row_min(x, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    return tl.broadcast_to(tl.min(x, 1, keep_dims=True), (ROWS, BLOCK))
""",
    "row_any": """\
@triton.jit
def _row_any(x, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    return tl.broadcast_to(tl.max(x.to(tl.int32), 1, keep_dims=True), (ROWS, BLOCK)) != 0
""",
}
NEEDS: Final[Mapping[str, Sequence[str]]] = {
    "tanh": ("expm1",),
    "sinh": ("expm1",),
    "fmod": ("trunc",),
}
