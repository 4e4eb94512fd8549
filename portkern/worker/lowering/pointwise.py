"""Operations on single elements, as C writes them."""

from __future__ import annotations

from collections.abc import Mapping

from portkern.worker.lowering.body import Kind

#: Functions of one element; ``{f}`` is what C adds to the name of a function of floats.
UNARY: Mapping[str, str] = {
    **{
        name: f"{name}{{f}}({{0}})"
        for name in (
            "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh "
            "asinh acosh atanh erf erfc floor ceil trunc lgamma"
        ).split()
    },
    "round": "rint{f}({0})",
    "neg": "-{0}",
    "abs": "({0} <= 0 ? 0 - {0} : {0})",
    "relu": "({0} < 0 ? 0 : {0})",
    "sigmoid": "1 / (1 + exp{f}(-{0}))",
    "reciprocal": "1 / {0}",
    "rsqrt": "1 / sqrt{f}({0})",
    "square": "{0} * {0}",
    "sign": "(({0} > 0) - ({0} < 0))",
    "sgn": "(({0} > 0) - ({0} < 0))",
    "logical_not": "!{0}",
    "bitwise_not": "~{0}",
    "isnan": "({0} != {0})",
    "isinf": "({0} == {0} && {0} - {0} != 0)",
    "isfinite": "({0} - {0} == 0)",
}
#: A NaN on either side stays one.
BINARY: Mapping[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "pow": "pow{f}({0}, {1})",
    "atan2": "atan2{f}({0}, {1})",
    "copysign": "copysign{f}({0}, {1})",
    "maximum": "({0} != {0} || {0} > {1} ? {0} : {1})",
    "minimum": "({0} != {0} || {0} < {1} ? {0} : {1})",
    "fmax": "fmax{f}({0}, {1})",
    "fmin": "fmin{f}({0}, {1})",
    "fmod": "fmod{f}({0}, {1})",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "logical_and": "{0} && {1}",
    "logical_or": "{0} || {1}",
    "logical_xor": "{0} != {1}",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "__lshift__": "{0} << {1}",
    "__rshift__": "{0} >> {1}",
}
#: Their result is a bool; they are done in the kind of what they compare.
COMPARING = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"))
#: The forms on integers, where C says them otherwise.
OF_INTEGERS: Mapping[str, str] = {
    "fmod": "{0} % {1}",
    "remainder": "(({0} % {1} + {1}) % {1})",
    "isnan": "false",
    "isinf": "false",
    "isfinite": "true",
    "floor": "{0}",
    "ceil": "{0}",
    "trunc": "{0}",
    "round": "{0}",
    **dict.fromkeys(("maximum", "fmax"), "({0} > {1} ? {0} : {1})"),
    **dict.fromkeys(("minimum", "fmin"), "({0} < {1} ? {0} : {1})"),
}
#: The forms on truths, which C computes as integers: ``~true`` is -2, which is true.
OF_TRUTHS: Mapping[str, str] = {
    "bitwise_not": "!{0}",
    "add": "{0} || {1}",
    "mul": "{0} && {1}",
}
#: A step of a reduction: what it begins with, and the next of ``a`` and an element ``v``.
STEPS: Mapping[str, tuple[str, str]] = {
    "sum": ("0", "a + v"),
    "mean": ("0", "a + v"),
    "prod": ("1", "a * v"),
    "amax": ("-INFINITY", "v > a || v != v ? v : a"),
    "amin": ("INFINITY", "v < a || v != v ? v : a"),
    "any": ("false", "a || v"),
    "all": ("true", "a && v"),
}


#: What C has no exact expression of on integers: its ``pow`` is of doubles.
_FLOATS_ALONE = frozenset(("pow",))


def written(name: str, operands: list[str], kind: Kind) -> str | None:
    """The expression in C, or None where there is no such operation on elements of this kind."""
    if kind in ("int64_t", "bool") and name in _FLOATS_ALONE:
        return None
    table = UNARY if len(operands) == 1 else BINARY
    template = table.get(name)
    if kind in ("int64_t", "bool") and name in OF_INTEGERS:
        template = OF_INTEGERS[name]
    if kind == "bool" and name in OF_TRUTHS:
        template = OF_TRUTHS[name]
    if template is None and name == "remainder":
        template = (
            "(fmod{f}({0}, {1}) != 0 && (fmod{f}({0}, {1}) < 0) != ({1} < 0)"
            " ? fmod{f}({0}, {1}) + {1} : fmod{f}({0}, {1}))"
        )
    return None if template is None else template.format(*operands, f="f" * (kind == "float"))
