"""Takes the floating-point operations out of LLVM's assembly, and puts calls in their place.

The calls go to portkern/simt/runtime/ring_operations.cpp, which computes on elements of a ring that
values' bits stand for. All that only moves values is left as it is. The code must come from
``-frounding-math``, or the compiler has computed with constants before.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from portkern.errors import BuildError

#: The types of LLVM with the integers of their size, and their names in functions.
_BITS = {"half": "i16", "bfloat": "i16", "float": "i32", "double": "i64"}
_FORMAT = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}

_UNARY = (
    *("exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "erf", "erfc", "tgamma", "lgamma", "j0", "j1", "y0", "y1"),
    *("floor", "ceil", "trunc", "round", "rint", "logb"),
)
_BINARY = (
    *("pow", "atan2", "hypot", "fmod", "remainder", "fdim", "nextafter"),
    *("maxnum", "minnum", "maximum", "minimum", "fadd", "fsub", "fmul", "fdiv", "frem"),
)
#: Functions of the C library and intrinsics by what they are called here.
_SAME = {
    **{name: name for name in (*_UNARY, *_BINARY, "fma", "ldexp", "powi", "frexp", "modf")},
    **{name: name for name in ("sincos", "remquo", "ilogb", "lrint", "lround")},
    **{"nearbyint": "rint", "roundeven": "rint", "fmuladd": "fma", "fmax": "maxnum"},
    **{"fmin": "minnum", "maximumnum": "maxnum", "minimumnum": "minnum", "scalbn": "ldexp"},
    **{"scalbln": "ldexp", "llrint": "lrint", "llround": "lround"},
}
#: Results of these are integers.
_TO_INTEGER = frozenset({"ilogb", "lrint", "lround", "fptosi", "fptoui"})

_RESULT = r"(?P<indent>[ \t]*)(?:(?P<result>%[-\w.$]+|%\"[^\"]*\") = )?"
_FLAGS = r"(?:(?:nnan|ninf|nsz|arcp|contract|afn|reassoc|fast) )*"
_TYPE = r"(?:<\d+ x \w+>|\w+)"
_CALL = re.compile(
    _RESULT
    + r"(?:tail |musttail |notail )?call "
    + _FLAGS
    + r"(?:(?:noundef|(?:nofpclass|range)\([^)]*\)|zeroext|signext) )*"
    + rf"(?P<type>{_TYPE}) @(?P<name>[\w.]+)\((?P<rest>.*)$"
)
_OPERATION = re.compile(
    _RESULT
    + r"(?P<name>fadd|fsub|fmul|fdiv|frem|fcmp|fptrunc|fpext|sitofp|uitofp|fptosi|fptoui) "
    + _FLAGS
    + r"(?:nneg )?(?P<rest>.*)$"
)
_DEFINED = re.compile(r"^define [^@]*@([\w.$]+)\(", re.MULTILINE)
_DECLARED = re.compile(r"^declare (?P<head>[^@]*)@(?P<name>[\w.$]+)\((?P<rest>.*)$", re.MULTILINE)
_FUNCTION = re.compile(r"@([\w.$]+)")
_ATOMIC = re.compile(r"\batomicrmw (?:volatile )?f")
_NATIVE = re.compile(
    r"[ \t]*%\S+ = (?:fadd|fsub|fmul|fdiv|frem|fcmp|fptrunc|fpext|[su]itofp|fpto[su]i) "
)
#: Functions that only move floats, write them as text or read them from one.
_MOVING = frozenset(
    (
        *("llvm.fabs", "llvm.copysign", "llvm.memcpy", "llvm.memmove", "llvm.memset", "llvm.dbg"),
        *("llvm.masked", "llvm.ssa", "llvm.vector.insert", "llvm.vector.extract"),
        *("fabs", "fabsf", "copysign", "copysignf", "atof", "strtod", "strtof", "drand48"),
    )
)
#: C++'s streams, beside functions of the runtime.
_OURS = ("simt_", "_ZNSo", "_ZNSi")
#: Mangled names that are not those of functions of the program.
_FOREIGN = ("_ZNSt", "_ZNKSt", "_ZSt", "_ZN2at", "_ZN3c10", "_ZN5torch")
#: An infinity of each format, as a literal, by whether it is negative.
_INFINITIES = (
    re.compile(r"\b0x(?:7FF0{13}|H7C00|R7F80)\b|(?<=[\s(])\+inf\b"),
    re.compile(r"\b0x(?:FFF0{13}|HFC00|RFF80)\b|(?<=[\s(])-inf\b"),
)
_LABEL = re.compile(r"(?:[-\w.$]+|\"[^\"]*\"):|\s*(?:;.*)?$")
_CONSTRAINED, _INTRINSIC = "llvm.experimental.constrained.", "llvm."
_VECTOR = re.compile(r"<(\d+) x (\w+)>")


@dataclass(frozen=True)
class _Value:
    type: str
    text: str


def with_ring(assembly: str) -> str:
    """The same module on elements. Raises BuildError for an operation that is not known."""
    defined = set(_DEFINED.findall(assembly))
    writer = _Writer(defined)
    noted = _with_infinities(assembly.split("\n"), writer)
    lines = [line for before in noted for line in writer.line(before)]
    _check(assembly, lines, defined)
    declared = [f"declare {text}" for text in sorted(writer.declarations)]
    return "\n".join([*lines, *declared, ""])


def _with_infinities(lines: Sequence[str], writer: _Writer) -> Iterator[str]:
    """Yields the lines; functions of a module that has infinities begin by saying so."""
    called = []
    for negative, pattern in enumerate(_INFINITIES):
        if any(pattern.search(line) for line in lines):
            called.append(f"  call void @simt_ring_infinity(i32 {negative})")
            writer.declarations.add("void @simt_ring_infinity(i32)")
    begins = False
    for line in lines:
        if begins and not _LABEL.match(line):
            yield from called
            begins = False
        yield line
        if line.startswith("define "):
            begins = True


def _check(assembly: str, lines: Sequence[str], defined: set[str]) -> None:
    """Raises BuildError where floats are left to code that has no elements."""
    foreign = {
        match["name"]
        for match in _DECLARED.finditer(assembly)
        if _FLOAT.search(match["head"] + match["rest"])
        and match["name"] not in defined
        and not _moves(match["name"])
    }
    for line in lines:
        if line.startswith("declare "):
            continue
        for name in _FUNCTION.findall(line):
            if name in foreign:
                raise BuildError(f"arithmetic=ring: no {name!r} on elements")
        if _NATIVE.match(line) and _FLOAT.search(line) and not any(of in line for of in _LONG):
            raise BuildError(f"arithmetic=ring: no operation on elements for {line.strip()!r}")
        if _is_assembly(line):
            raise BuildError(f"arithmetic=ring: no operation on elements for {line.strip()!r}")


def _is_assembly(line: str) -> bool:
    """Whether a line is the processor's assembly, which takes or returns floats."""
    head, of, rest = line.partition(" asm ")
    arguments = rest.rpartition('"(')[2]
    return bool(of and " call " in head and _FLOAT.search(f"{head} {arguments}"))


def _moves(name: str) -> bool:
    """Whether a function that is not defined here computes nothing with floats, or is one of the
    program's, which has elements where it is defined."""
    parts = name.split(".")
    if any(".".join(parts[:count]) in _MOVING for count in (1, 2, 3)):
        return True
    own = name.startswith("_Z") and not name.startswith(_FOREIGN)
    return own or name.startswith(_OURS)


class _Writer:
    def __init__(self, defined: set[str]) -> None:
        self._defined = defined
        self._numbers = count()
        self.declarations = set[str]()

    def line(self, line: str) -> Iterator[str]:
        if " call " in line and (match := _CALL.match(line)):
            yield from self._call(line, match)
        elif _ATOMIC.search(line):
            raise BuildError(f"arithmetic=ring: no operation on elements for {line.strip()!r}")
        elif match := _OPERATION.match(line):
            yield from self._operation(match)
        else:
            yield line

    # ---- what stands there

    def _call(self, line: str, match: re.Match[str]) -> Iterator[str]:
        name, type_ = match["name"], match["type"]
        listed, _ = _arguments(match["rest"])
        values = [_value(text) for text in listed]
        if name.startswith(_CONSTRAINED):
            yield from self._constrained(match, name.removeprefix(_CONSTRAINED), values)
            return
        if name in self._defined:
            yield line
            return
        if name.startswith(_INTRINSIC):
            plain = name.removeprefix(_INTRINSIC).split(".")[0]
            if plain == "is" and name.startswith("llvm.is.fpclass"):
                yield from self._each(match, "fpclass", type_, values, returns="i32")
            elif name.startswith(("llvm.fptosi.sat", "llvm.fptoui.sat")):
                yield from self._each(match, plain, type_, values)
            elif plain in _SAME and _is_float(type_, values):
                yield from self._each(match, _SAME[plain], type_, values)
            else:
                yield line
            return
        plain = _of_library(name, values)
        if plain:
            yield from self._each(match, plain, type_, values)
        else:
            yield line

    def _constrained(
        self, match: re.Match[str], name: str, values: Sequence[_Value]
    ) -> Iterator[str]:
        plain, type_ = name.split(".")[0], match["type"]
        given = [value for value in values if value.type != "metadata"]
        if not _is_float(type_, given):
            yield match[0]  # long double
        elif plain in ("fcmp", "fcmps"):
            predicate = values[2].text.strip('!"')
            yield from self._each(match, f"fcmp_{predicate}", type_, given, returns="i32")
        elif plain in ("fptrunc", "fpext"):
            yield from self._converted(match, given[0], type_)
        else:
            yield from self._each(match, _SAME.get(plain, plain), type_, given)

    def _operation(self, match: re.Match[str]) -> Iterator[str]:
        name, rest = match["name"], match["rest"].split(", !")[0]
        if not _FLOAT.search(rest):
            yield match[0]
        elif name == "fcmp":
            predicate, _, rest = rest.partition(" ")
            values = _pair(rest)
            result = _same_shape(values[0].type, "i1")
            yield from self._each(match, f"fcmp_{predicate}", result, values, returns="i32")
        elif name in ("fadd", "fsub", "fmul", "fdiv", "frem"):
            values = _pair(rest)
            yield from self._each(match, name, values[0].type, values)
        else:
            before, _, type_ = rest.rpartition(" to ")
            if name in ("fptrunc", "fpext"):
                yield from self._converted(match, _value(before), type_)
            else:
                yield from self._each(match, name, type_, [_value(before)])

    # ---- what comes there

    def _each(
        self,
        match: re.Match[str],
        name: str,
        type_: str,
        values: Sequence[_Value],
        *,
        returns: str = "",
    ) -> Iterator[str]:
        """The operation, on each lane of vectors."""
        vector = _VECTOR.fullmatch(type_) or (values and _VECTOR.fullmatch(values[0].type))
        indent, result = match["indent"], match["result"]
        if not vector:
            yield from self._one(indent, result, name, type_, values, returns)
            return
        made = "poison"
        of = (_VECTOR.fullmatch(type_) or vector)[2]
        for lane in range(int(vector[1])):
            lanes = []
            for value in values:
                inner = _VECTOR.fullmatch(value.type)
                if inner:
                    part = self._temporary()
                    yield f"{indent}{part} = extractelement {value.type} {value.text}, i64 {lane}"
                    lanes.append(_Value(inner[2], part))
                else:
                    lanes.append(value)
            one = self._temporary()
            yield from self._one(indent, one, name, of, lanes, returns)
            last = lane == int(vector[1]) - 1
            into = result if last else self._temporary()
            yield f"{indent}{into} = insertelement {type_} {made}, {of} {one}, i64 {lane}"
            made = into

    def _one(
        self,
        indent: str,
        result: str | None,
        name: str,
        type_: str,
        values: Sequence[_Value],
        returns: str,
    ) -> Iterator[str]:
        floats = [value.type for value in values if value.type in _BITS]
        of = type_ if name in ("sitofp", "uitofp") else floats[0] if floats else type_
        if of not in _FORMAT or any(value.type in _LONG for value in values):
            raise BuildError(f"arithmetic=ring: no {name} on elements for {of}")
        given = []
        for value in values:
            if value.type in _BITS:
                bits = self._temporary()
                yield f"{indent}{bits} = bitcast {value.type} {value.text} to {_BITS[value.type]}"
                given.append(_Value(_BITS[value.type], bits))
            elif value.type != "ptr" and name in ("sitofp", "uitofp", "ldexp", "powi"):
                wide = yield from self._as_i64(indent, value, signed=name != "uitofp")
                given.append(wide)
            elif value.type in ("ptr", "i32"):
                given.append(value)
        function = f"simt_ring_{name}_{_FORMAT[of]}"
        back = returns or _BITS.get(type_) or ("i64" if name in _TO_INTEGER else type_)
        yield from self._called(indent, result, function, back, type_, given)

    def _converted(self, match: re.Match[str], value: _Value, type_: str) -> Iterator[str]:
        if vector := _VECTOR.fullmatch(type_):
            lanes, made = int(vector[1]), "poison"
            of = _VECTOR.fullmatch(value.type)
            assert of is not None, match[0]
            for lane in range(lanes):
                one, to = self._temporary(), self._temporary()
                yield f"  {one} = extractelement {value.type} {value.text}, i64 {lane}"
                yield from self._conversion("  ", to, _Value(of[2], one), vector[2])
                into = match["result"] if lane == lanes - 1 else self._temporary()
                yield f"  {into} = insertelement {type_} {made}, {vector[2]} {to}, i64 {lane}"
                made = into
        else:
            yield from self._conversion(match["indent"], match["result"], value, type_)

    def _conversion(self, indent: str, result: str, value: _Value, type_: str) -> Iterator[str]:
        if value.type in _LONG:  # its arithmetic is the processor's, on what numbers stand for
            yield f"{indent}{result} = fptrunc {value.type} {value.text} to {type_}"
            return
        bits = self._temporary()
        yield f"{indent}{bits} = bitcast {value.type} {value.text} to {_BITS[value.type]}"
        given = [_Value(_BITS[value.type], bits)]
        if type_ in _LONG:
            plain = self._temporary()
            function = f"simt_ring_shadow_{_FORMAT[value.type]}"
            self.declarations.add(f"double @{function}({given[0].type})")
            yield f"{indent}{plain} = call double @{function}({given[0].type} {bits})"
            yield f"{indent}{result} = fpext double {plain} to {type_}"
            return
        function = f"simt_ring_{_FORMAT[value.type]}_to_{_FORMAT[type_]}"
        yield from self._called(indent, result, function, _BITS[type_], type_, given)

    def _called(
        self,
        indent: str,
        result: str | None,
        function: str,
        back: str,
        type_: str,
        given: Sequence[_Value],
    ) -> Iterator[str]:
        """The call, and its result as what was to come."""
        types = ", ".join(value.type for value in given)
        self.declarations.add(f"{back} @{function}({types})")
        call = f"call {back} @{function}({', '.join(f'{v.type} {v.text}' for v in given)})"
        if type_ == "void" or result is None:
            yield f"{indent}{call}"
        elif back == type_:
            yield f"{indent}{result} = {call}"
        else:
            got = self._temporary()
            yield f"{indent}{got} = {call}"
            how = "bitcast" if type_ in _BITS else "trunc"
            yield f"{indent}{result} = {how} {back} {got} to {type_}"

    def _as_i64(self, indent: str, value: _Value, *, signed: bool) -> Generator[str, None, _Value]:
        """A generator whose own value is the wider one."""
        if value.type == "i64":
            return value
        if value.type == "i128":
            raise BuildError("arithmetic=ring: no conversion of integers of 128 bits")
        wide = self._temporary()
        how = "sext" if signed else "zext"
        yield f"{indent}{wide} = {how} {value.type} {value.text} to i64"
        return _Value("i64", wide)

    def _temporary(self) -> str:
        return f"%simt.ring.{next(self._numbers)}"


_FLOAT = re.compile(r"\b(?:half|bfloat|float|double)\b")
_LONG = frozenset(("x86_fp80", "fp128"))


def _is_float(type_: str, values: Sequence[_Value]) -> bool:
    return any(
        (vector[2] if (vector := _VECTOR.fullmatch(text)) else text) in _BITS
        for text in (type_, *(value.type for value in values))
    )


def _of_library(name: str, values: Sequence[_Value]) -> str:
    """The name that a function of the C library has here, '' for another."""
    if not values or values[0].type not in ("float", "double"):
        return ""
    is_float = values[0].type == "float"
    plain = name.removeprefix("__").removesuffix("_finite")
    if is_float:
        if not plain.endswith("f"):
            return ""
        plain = plain[:-1]
    return _SAME.get(plain, "")


def _arguments(rest: str) -> tuple[list[str], str]:
    """The arguments of a call whose opening parenthesis stands before ``rest``, and what follows
    the closing one."""
    depth, first, found = 0, 0, list[str]()
    in_text = False
    for at, letter in enumerate(rest):
        if letter == '"':
            in_text = not in_text
        elif in_text:
            continue
        elif letter in "([{<":
            depth += 1
        elif letter == ")" and depth == 0:
            last = rest[first:at].strip()
            return [*found, last] if last else found, rest[at + 1 :]
        elif letter in ")]}>":
            depth -= 1
        elif letter == "," and depth == 0:
            found.append(rest[first:at].strip())
            first = at + 1
    return found, ""


_ATTRIBUTE = (
    r"(?:noundef|nonnull|zeroext|signext|noalias|nocapture|readonly|readnone|writeonly|inreg"
    r"|returned|align \d+|\w+\([^)]*\))"
)
_ARGUMENT = re.compile(rf"({_TYPE}) (?:{_ATTRIBUTE} )*(.+)$")


def _value(text: str) -> _Value:
    match = _ARGUMENT.match(text)
    return _Value(match[1], match[2]) if match else _Value(text, text)


def _pair(rest: str) -> list[_Value]:
    """The operands of ``float %a, %b``."""
    listed, _ = _arguments(f"{rest})")
    first = _value(listed[0])
    return [first, _Value(first.type, listed[1])]


def _same_shape(type_: str, element: str) -> str:
    vector = _VECTOR.fullmatch(type_)
    return f"<{vector[1]} x {element}>" if vector else element
