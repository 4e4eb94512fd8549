"""Blocks of elements as a Pallas kernel writes them. Integers have 32 bits there, and there are no
doubles: where C sums in one, a float does it together with what it has rounded off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from portkern.worker.lowering.body import Kind
from portkern.worker.lowering.lanes import LoweredLanes, Term

DTYPES: Final[Mapping[Kind, str]] = {
    "bool": "jnp.bool_",
    "int64_t": "jnp.int32",
    "float": "jnp.float32",
    "double": "jnp.float32",
}
_OWN = "exp exp2 expm1 log log1p sin cos tan sqrt tanh sinh cosh floor ceil".split()


class JaxLanes(LoweredLanes):
    language = "Pallas"
    integers = (-(2**31), 2**31 - 1)
    functions: Mapping[str, str] = {
        **{name: f"jnp.{name}({{0}})" for name in _OWN},
        "asin": "jnp.arcsin({0})",
        "acos": "jnp.arccos({0})",
        "atan": "jnp.arctan({0})",
        "asinh": "jnp.arcsinh({0})",
        "acosh": "jnp.arccosh({0})",
        "atanh": "jnp.arctanh({0})",
        "atan2": "jax.lax.atan2({0}, {1})",
        "log2": "(jnp.log({0}) * 1.4426950408889634)",
        "log10": "(jnp.log({0}) * 0.4342944819032518)",
        "erf": "_erf({0})",
        "pow": "jax.lax.pow({0}, {1})",
        "rint": "_rint({0})",
        "trunc": "jnp.where({0} < 0, jnp.ceil({0}), jnp.floor({0}))",
        "fmod": "jax.lax.rem({0}, {1})",
        "fmax": "jnp.where(({0} > {1}) | ({1} != {1}), {0}, {1})",
        "fmin": "jnp.where(({0} < {1}) | ({1} != {1}), {0}, {1})",
    }

    def convert(self, block: str, kind: Kind) -> str:
        return f"({block}).astype({DTYPES[kind]})"

    def full(self, value: Term) -> str:
        if value.spread == "block":
            return value.text
        return f"jnp.full({self.shape}, {value.text}, {DTYPES[value.kind]})"

    def where(self, condition: Term, yes: Term, no: Term) -> str:
        kind = DTYPES[yes.kind]
        left, right = (
            side.text if side.spread == "block" else f"jnp.full({self.shape}, {side.text}, {kind})"
            for side in (yes, no)
        )
        return f"jnp.where({condition.text}, {left}, {right})"

    def divided(self, sign: str, left: Term, right: Term) -> str:
        parts = ", ".join(f"({self.zero} + {one.text})" for one in (left, right))
        return f"jax.lax.{'div' if sign == '/' else 'rem'}({parts})"

    def load(self, name: str, place: str, kind: Kind) -> str:
        loaded = f"plt.load({name}.at[{place}], mask={self.mask}, other=0)"
        return f"{loaded}.astype({DTYPES[kind]})"

    def store(self, name: str, place: str, value: Term) -> str:
        """Lanes without work have no place: the interpreter stores what was there again."""
        at = f"jnp.where({self.mask}, {place}, {2**31 - 1})"
        held = f"({value.text}).astype({name}.dtype)"
        return f"plt.store({name}.at[{at}], {held}, mask={self.mask})"

    def in_row(self, name: str, value: Term) -> str:
        self.called.add(name)
        return f"_{name}({value.text})"

    def begun(self, name: str, kind: Kind) -> None:
        if kind == "double":
            self.say(f"{name}_rest = jnp.zeros_like({name})")

    def parts(self, name: str) -> list[str]:
        own = super().parts(name)
        return [*own, f"{name}_rest"] if own and self.names[name].kind == "double" else own

    def add(self, total: Term, value: Term) -> None:
        name = total.text
        self.say(f"{name}, {name}_rest = _add({name}, {name}_rest, {value.text}, {self.mask})")
        self.called.add("add")

    @contextmanager
    def loop(self, counter: str, bound: str, changed: Sequence[str]) -> Iterator[None]:
        """A function of what it changes."""
        state = "".join(f"{name}, " for name in changed)
        self.say(f"def loop_{counter}({counter}, state):")
        with self.deeper():
            if state:
                self.say(f"({state}) = state")
            yield
            self.say(f"return ({state})")
        target = f"({state}) = " if state else ""
        self.say(f"{target}jax.lax.fori_loop(0, {bound}, loop_{counter}, ({state}))")


#: The helpers by the names of functions that need them.
HELPERS: Final[Mapping[str, str]] = {
    "add": '''\
def _add(total, rest, value, mask):
    """A sum in two floats; nothing is left over where it is infinite."""
    value = jnp.where(mask, value, 0.0) + rest
    after = total + value
    left = jnp.where(after - after == 0, value - (after - total), 0.0)
    return jnp.where(mask, after, total), jnp.where(mask, left, rest)
''',
    "erf": '''\
def _erf(x):
    """Triton's lowering has none: a series near 0, else exp(-z * z) times a polynomial in
    1 / (1 + 0.4 z), of which least squares in float64 leave 5e-8."""
    s = x * x
    near = 0.0
    for c in (-0.0008548327, 0.00522397762544, -0.02686617064513, 0.1128379167095513,
              -0.3761263890318375, 1.1283791670955126):
        near = near * s + c
    z = jnp.abs(x)
    t = 1.0 / (1.0 + 0.4 * z)
    far = 0.0
    for c in (0.0331296231, -0.0974742832, -0.0134984923, 0.213245475, -0.0202053442, 0.244622098,
              0.185062321, 0.229851934, 0.225248086, 1.86280722e-05):
        far = far * t + c
    far = 1.0 - jnp.exp(-z * z) * far
    return jnp.where(z < 0.5, x * near, jnp.where(x < 0, -far, far))
''',
    "rint": '''\
def _rint(x):
    """To the even neighbour where both are as near."""
    low = jnp.floor(x)
    odd = low - 2.0 * jnp.floor(low * 0.5)
    up = (x - low > 0.5) | ((x - low == 0.5) & (odd == 1.0))
    return jnp.where(up, low + 1.0, low)
''',
    "row_sum": """\
def _row_sum(x):
    return jnp.broadcast_to(jnp.sum(x, axis=1, keepdims=True), x.shape)
""",
    "row_max": """\
def _row_max(x):
    return jnp.broadcast_to(jnp.max(x, axis=1, keepdims=True), x.shape)
""",
    "row_min": """\
def _row_min(x):
    return jnp.broadcast_to(jnp.min(x, axis=1, keepdims=True), x.shape)
""",
    "row_any": """\
def _row_any(x):
    found = jnp.max(x.astype(jnp.int32), axis=1, keepdims=True)
    return jnp.broadcast_to(found, x.shape) != 0
""",
}
NEEDS: Final[Mapping[str, Sequence[str]]] = {}
