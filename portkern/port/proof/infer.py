"""A case for a kernel from its signature, its text and the launch in the host's code."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, starmap

from portkern.cuda_source.syntax import LaunchText, Parameter, SourceKernel
from portkern.port.proof import assigned, records, strides, switches, width
from portkern.port.proof.accessors import accessor_of, tensor_of, with_sizes
from portkern.port.proof.case import (
    Argument,
    Buffer,
    ProofCase,
    Scalar,
    StructValue,
    Tensor,
    shape_text,
)
from portkern.port.proof.chosen import Chosen, launch_of, number_of, templates
from portkern.port.proof.commas import split
from portkern.port.proof.element import bound_type, element_of, plain_type
from portkern.port.proof.expression import Names
from portkern.port.proof.guesses import (
    BLOCK,
    GRID,
    SHARED,
    THREADS,
    Guess,
    Unsaid,
    has_dynamic_memory,
    is_of_launch,
    of_attributes,
)
from portkern.port.proof.instances import constants, numbers
from portkern.port.proof.outcome import Refused
from portkern.port.proof.recording import Size
from portkern.port.proof.sizes_asked import (
    as_member,
    data_of,
    in_statements,
    of_axis,
    with_element_sizes,
)
from portkern.port.proof.texts import SourceTexts

__all__ = ["SCALES", "Refused", "Scale", "propose", "templates"]


@dataclass(frozen=True)
class Scale:
    """Sizes to try: of each role of a dimension, and by how much buffers are larger than the
    product of the dimensions. ``bits``: integers in buffers have any value, not only indices;
    ``least``: what a number is that the host's code computes as 0 of sizes as small as these;
    ``named``: a number is what the kernel asks whether it is, as ``mode == 5``;
    ``alike``: all dimensions are as long as this, so that any index fits any of them; ``unit``:
    numbers lie between 0 and 1, as places in a cell and shares do."""

    total: int
    batch: int
    heads: int
    rows: int
    inner: int
    room: int = 1
    bits: bool = False
    least: int = 0
    named: bool = False
    alike: int = 0
    unit: bool = False


#: Odd sizes first: they reach the guards. Where the original is not made for them, even ones; where
#: it reads past its buffers, larger buffers. Last what kernels need that would write nothing.
SCALES = (
    Scale(1000, 2, 3, 7, 100),
    Scale(1024, 2, 4, 8, 128),
    Scale(4096, 2, 4, 64, 64),
    Scale(1024, 1, 2, 128, 128),
    Scale(1024, 2, 4, 8, 128, room=16),
    Scale(256, 1, 2, 16, 256, room=64),
    Scale(2048, 4, 4, 32, 1024, room=4),
    Scale(1024, 1, 2, 256, 64, room=4),
    Scale(1024, 2, 4, 8, 128, least=1),
    Scale(1024, 2, 4, 8, 128, bits=True),
    Scale(1024, 2, 4, 8, 128, named=True),
    Scale(1024, 2, 4, 8, 128, unit=True),
)
#: The forms of kernels that ask accessors for their extents: those that begin alike, then all
#: alike.
_OF_TENSORS = (
    *SCALES[:2],
    Scale(0, 0, 0, 0, 0, alike=32),
    Scale(0, 0, 0, 0, 0, alike=64),
    *SCALES[2:4],
)
#: The most elements of a tensor whose dimensions are alike.
_MOST_ALIKE = 1 << 16
_MOST_ELEMENTS, _MOST_BLOCKS = 1 << 21, 4096
#: The most threads of a kernel that goes through its data in strides of the grid: more only take
#: time.
_MOST_THREADS = 1 << 15
#: The dynamic shared memory where the launch's size is not known, and all that a block may have
#: without being asked for more.
_SHARED_BYTES, _MOST_SHARED = 16 << 10, 48 << 10
_SHARED_ARRAY = re.compile(
    r"(?<!extern )__shared__\s+(?:__align__\s*\(\d+\)\s*)?([\w:]+(?:\s+[\w:]+)?)\s+\w+\s*"
    r"((?:\[[^\]]+\]\s*)+);"
)
_OF_CLASS = re.compile(r"(\w+)\s*::\s*(\w+)")
#: A constant of host code is as it is up to here; larger ones are sizes, which a scale cuts down.
_SMALL = 1024

_BATCH = re.compile(r"(b|bs|n?_?batch\w*|num_batch\w*)", re.IGNORECASE)
_HEADS = re.compile(r"(nh|n_?heads?|num_heads?|heads?|groups?|g)", re.IGNORECASE)
_INNER = re.compile(
    r"(c|d|k|v|vp|w|n?_?cols?|columns?|n?_?col|num_cols|dims?|hidden\w*|width|vocab\w*|"
    r"n?_?channels?|head_?dim|hs|n?_?features?|embed\w*|stride\w*|ld\w?|pitch|inner\w*)",
    re.IGNORECASE,
)
_ROWS = re.compile(
    r"(m|h|t|oc|n?_?rows?|num_rows|height|seq\w*|outer\w*|length_q|nx|ny|nz)", re.IGNORECASE
)
#: How wide the machine's warps are, in CUDA's and in PyTorch's words.
_WIDTHS = ("warpSize", "C10_WARP_SIZE")
_TOTAL = re.compile(
    r"(n|size|len\w*|numel|total\w*|elements|count|num\w*|n_?\w+|\w*_?size|\w*_len|\w*count|end)",
    re.IGNORECASE,
)
_ZERO = re.compile(
    r"((?=\w*?offset)\w++|start\w*|begin\w*|first\w*|axis|seed|mode|flag\w*)", re.IGNORECASE
)
#: The names of a window that goes over an image, by which it leaves the image as large as it was.
_KERNEL = re.compile(r"(kernel|filter|window|patch)_?\w{1,6}|k_?[hwd]|k(er)?size", re.IGNORECASE)
_AROUND = re.compile(r"(pad|padding|dil|dilation)_?\w{0,6}", re.IGNORECASE)
_STEP = re.compile(r"strides?_?(\d|h|w|d|x|y|z|height|width|depth)|d[hwHW]", re.IGNORECASE)
_EPSILON = re.compile(r"(eps\w*)", re.IGNORECASE)
_DECAY = re.compile(r"(beta_?\d?|\w*decay|momentum)", re.IGNORECASE)
_ALLOCATION = r"\b(?:cuda|hip)Malloc\w*\s*\(\s*(?:\([^()]*\)\s*)?&\s*{}\s*,"
#: Arithmetic of names and numbers, without calls.
_PLAIN = re.compile(r"(?:\w+|\([\w\s+*/%-]+\))(?:\s*[+*/%-]\s*(?:\w+|\([\w\s+*/%-]+\)))*")
#: A type whose only value says what it is called.
_TAG = re.compile(r"(?:std::)?(?:(?:bool_|integral_)constant<[^<>]*>|(?:true|false)_type)&?")
_VOID = re.compile(r"void\*")
#: ``reinterpret_cast<T*>(p.x)``
_CAST = r"reinterpret_cast\s*<\s*(?:const\s+)?([\w:]+)\s*\*\s*>\s*\(\s*{}\b"
#: ``using T = typename Traits::input_t;``
_ALIAS = r"\busing\s+{}\s*=\s*(?:typename\s+)?(?:(\w+)\s*::\s*)?(\w+)\s*;"
_TEXTURE = re.compile(r"\b(cuda|hip)?(TextureObject_t|SurfaceObject_t)\b|\btexture<|CUtensorMap")


def scales(kernel: SourceKernel, texts: SourceTexts) -> tuple[Scale, ...]:
    """The sizes to try for a kernel, in their order."""
    takes = any("TensorAccessor" in texts.aliases.get(t, t) for t in _types(kernel.parameters))
    return _OF_TENSORS if takes else SCALES


def _types(parameters: Sequence[Parameter]) -> list[str]:
    return [plain_type(parameter.type).rstrip("&") for parameter in parameters]


def propose(
    kernel: SourceKernel,
    texts: SourceTexts,
    scale: Scale,
    *,
    warp: int,
    choice: int = 0,
    threads: int = THREADS[0],
) -> ProofCase | Refused:
    """``warp`` is the width at which the host's code computes its launches, ``choice`` says which
    of the instances that are launched; blocks of unknown size have about so many ``threads``."""
    kernel = _named(kernel)
    found = templates(kernel, texts)
    if isinstance(found, Refused):
        return found
    chosen = found[number_of(choice, len(found))]
    launch, offset = launch_of(kernel, texts, chosen.at)
    given = dict(zip(_names(kernel.template), chosen.template, strict=False))
    known = {**texts.aliases, **given}
    spread = _spread(kernel, texts, known)
    if isinstance(spread, Refused):
        return spread
    spread = [(whole, tuple(_typed(p, kernel, texts, known) for p in of)) for whole, of in spread]
    parameters = tuple(one for _, of in spread for one in of)
    problem = _impossible(parameters, known, texts.rows)
    if problem is not None:
        return problem
    return _Proposal(
        kernel, texts, launch, offset, scale, warp, chosen, known, spread, threads
    ).case()


def _named(kernel: SourceKernel) -> SourceKernel:
    """The kernel with a name for each parameter that has none."""
    taken = set(_names(kernel.parameters))
    free = (name for n in count() if (name := f"argument_{n}") not in taken)
    own = tuple(p if p.name else replace(p, name=next(free)) for p in kernel.parameters)
    return replace(kernel, parameters=own)


#: Each parameter with what the case has a value for: itself, or the members of its struct.
_Spread = Sequence[tuple[Parameter, tuple[Parameter, ...]]]


def _spread(
    kernel: SourceKernel, texts: SourceTexts, known: Mapping[str, str]
) -> _Spread | Refused:
    spread: list[tuple[Parameter, tuple[Parameter, ...]]] = []
    for parameter in kernel.parameters:
        own = None
        if not _is_known(parameter, known):
            own = records.members(parameter, known, texts.records)
        if isinstance(own, Refused):
            return own
        if own is not None:
            classes = records.class_names(parameter.type, known, texts.records)
            problem = assigned.of_width(parameter, own, known, classes, texts.whole)
            if problem is not None:
                return problem
        spread.append((parameter, (parameter,) if own is None else own))
    return spread


def _typed(
    member: Parameter, kernel: SourceKernel, texts: SourceTexts, known: Mapping[str, str]
) -> Parameter:
    """A struct's pointer to void as one to what the kernel casts it to, where that is one type, and
    as one to bytes where the kernel never asks for it."""
    if not _VOID.fullmatch(plain_type(member.type)):
        return member
    file = texts.file_of(kernel.name) or texts.own
    text = file.text[kernel.start : kernel.stop]
    if "." in member.name and not _is_asked_for(member.name, text):
        return replace(member, type=member.type.replace("void", "unsigned char"))
    casts = {match[1] for match in re.finditer(_CAST.format(re.escape(member.name)), text)}
    found = {_within(name, text, texts, known) for name in casts}
    element = found.pop() if len(found) == 1 else ""
    return replace(member, type=member.type.replace("void", element)) if element else member


def _is_asked_for(member: str, text: str) -> bool:
    """Whether a kernel names a member of its struct, or hands the struct on."""
    whole, _, name = member.partition(".")
    handed_on = re.search(
        rf"(?<![\w.>])&?{re.escape(whole)}\b(?!\s*(?:\.|->))", text.partition("{")[2]
    )
    return handed_on is not None or re.search(rf"\b{re.escape(_last(name))}\b", text) is not None


def _within(name: str, text: str, texts: SourceTexts, known: Mapping[str, str]) -> str:
    """An element's type as a kernel's text calls it: its own, its template's, or that of a class
    which is an argument of it; '' where it is not known."""
    alias = re.search(_ALIAS.format(re.escape(name)), text)
    if alias and alias[1]:
        name = texts.instances.member_type(known.get(alias[1], alias[1]), alias[2])
    elif alias:
        name = alias[2]
    name = known.get(name, name)
    return name if element_of(name, known) is not None else ""


def _is_known(parameter: Parameter, known: Mapping[str, str]) -> bool:
    type_ = plain_type(parameter.type)
    return type_.endswith(("*", "]")) or element_of(type_.rstrip("&"), known) is not None


def _impossible(
    parameters: Sequence[Parameter], known: Mapping[str, str], rows: Mapping[str, str]
) -> Refused | None:
    for parameter in parameters:
        type_ = plain_type(parameter.type)
        if _TEXTURE.search(type_):
            return Refused(f"'{parameter.name}' is {type_}, of which there is no model here", True)
        if type_.endswith("**"):
            return Refused(f"'{parameter.name}' points to pointers, of which none are made up")
        if type_.endswith("..."):
            return Refused(f"'{parameter.name}' is a pack of parameters")
        if _TAG.fullmatch(type_) or accessor_of(type_, known) is not None:
            continue
        of = {**rows, **known} if type_.endswith(("*", "]")) else known
        if element_of(type_.rstrip("*&[]"), of) is None:
            return Refused(f"'{parameter.name}' is of type {type_}, for which no value is known")
    return None


def _names(parameters: Sequence[Parameter]) -> list[str]:
    return [parameter.name for parameter in parameters]


class _Proposal:
    """The names that sizes depend on get a value by what they are called; all else follows."""

    def __init__(
        self,
        kernel: SourceKernel,
        texts: SourceTexts,
        launch: LaunchText | None,
        offset: int,
        scale: Scale,
        warp: int,
        chosen: Chosen,
        known: Mapping[str, str],
        spread: _Spread,
        threads: int,
    ) -> None:
        self._kernel, self._launch, self._scale = kernel, launch, scale
        self._threads = threads
        self._spread = spread
        self._parameters = [one for _, of in spread for one in of]
        self._records = texts.records
        self._template, self._known = chosen.template, known
        self._bound_names = dict(chosen.bound)
        self._elements = {**texts.rows, **known}
        self._bound = dict(zip(_names(kernel.template), chosen.template, strict=False))
        file = texts.file_of(kernel.name) or texts.own
        self._text = file.text[kernel.start : kernel.stop]
        own = constants(kernel.template, chosen.template)
        widths = dict.fromkeys(_WIDTHS, warp)
        told = switches.told(texts.whole, offset)
        given = {**widths, **told, **own, **numbers(dict(chosen.bound))}
        self._offset, self._asking = offset, texts.whole
        self._whole = width.in_one_word(texts.whole)
        self._names = Names(self._whole, given, known)
        self._know_width()
        self._arguments = self._argument_texts()
        self._extents = self._of_accessors()
        self._know_sizes(given)
        self._know_calls()
        passed = [self._arguments[parameter.name] for parameter in self._integers()]
        self._passed = frozenset(name for text in passed for name in self._depends_on(text))
        self._unsaid = set(Unsaid(self._launch, self._names, self._offset, self._passed).parts)
        self._block_names()
        names = [*_names(self._parameters), *map(_last, self._arguments.values())]
        self._is_window = any(map(_KERNEL.fullmatch, names)) and any(map(_AROUND.fullmatch, names))
        sizes = self._sized()
        of_tensors = {n: s for n, s in sizes.items() if self._of_window(_last(n)) is None}
        self._tensors = strides.tensors(of_tensors)
        self._dimensions = sizes | strides.values(self._tensors) | self._longest()
        self._names.given |= self._dimensions

    def case(self) -> ProofCase:
        block = self._block()
        grid, shared = self._grid(block), self._shared()
        arguments = tuple(starmap(self._whole_argument, self._spread))
        tried = {BLOCK: shape_text(block), GRID: shape_text(grid), SHARED: f"{shared} bytes"}
        guesses = [Guess(what, tried[what]) for what in tried if what in self._unsaid]
        guesses += of_attributes(self._launch, self._asking)
        return ProofCase(
            self._kernel.name, self._template, grid, block, shared, arguments, tuple(guesses)
        )

    # ---- dimensions

    def _argument_texts(self) -> dict[str, str]:
        """The launch's expression of each parameter; its own name where there is none."""
        names, own = _names(self._kernel.parameters), {p.name: p.name for p in self._parameters}
        if self._launch is not None and len(self._launch.arguments) == len(names):
            own |= dict(zip(names, self._launch.arguments, strict=True))
        for parameter, members in self._spread:
            if members != (parameter,):
                own |= self._member_texts(parameter, members, own.get(parameter.name, ""))
        return own

    def _member_texts(
        self, parameter: Parameter, members: Sequence[Parameter], given: str
    ) -> dict[str, str]:
        """The expressions that host code sets members to; where that is more than arithmetic of
        names, the member itself, as the launch calls it."""
        classes = records.class_names(parameter.type, self._known, self._records)
        called = given if given.isidentifier() else parameter.name
        found = {m.name: assigned.set_to(m, classes, self._asking) for m in members}
        return {
            name: text if _PLAIN.fullmatch(text) else name.replace(parameter.name, called, 1)
            for name, text in found.items()
        }

    def _know_width(self) -> None:
        """Host code that asks for the width of warps is told the machine's."""
        if self._launch is not None:

            def told(text: str) -> str:
                return width.in_launch(text, self._asking, self._offset)

            shape = (self._launch.grid, self._launch.block, self._launch.shared)
            grid, block, shared = map(told, shape)
            arguments = tuple(map(told, self._launch.arguments))
            self._launch = replace(
                self._launch, grid=grid, block=block, shared=shared, arguments=arguments
            )

    def _of_accessors(self) -> dict[str, tuple[int, ...]]:
        """The extents of each accessor: from the first axis on alike."""
        found = {p.name: accessor_of(p.type, self._known) for p in self._kernel.parameters}
        ranks = {name: accessor.rank for name, accessor in found.items() if accessor is not None}
        scale, most = self._scale, max(ranks.values(), default=0)
        if scale.alike:
            size = min(scale.alike, int(_MOST_ALIKE ** (1 / max(most, 1))))
            return {name: (size,) * rank for name, rank in ranks.items()}
        axes = [scale.batch, scale.heads, *[scale.rows] * max(most - 3, 1), scale.inner]
        own = {1: axes[-1:], 2: axes[-2:], 3: [axes[0], *axes[-2:]]}.get(most, axes)
        return {name: tuple(own[:rank]) for name, rank in ranks.items()}

    def _know_sizes(self, given: Mapping[str, int]) -> None:
        """Host code that asks a tensor for a size is told that of its accessor."""
        before, tensors = self._names.before(self._offset), dict[str, tuple[int, ...]]()
        for name, extents in self._extents.items():
            text = self._arguments[name]
            tensor = tensor_of(before.get(text.strip(), text))
            if tensor:
                tensors[tensor] = extents
        if not tensors:
            return
        self._whole = with_sizes(self._whole, tensors)
        self._names = Names(self._whole, given, self._known)
        self._arguments = {n: with_sizes(text, tensors) for n, text in self._arguments.items()}
        launch = self._launch
        if launch is not None:
            grid, block, shared = (
                with_sizes(text, tensors) for text in (launch.grid, launch.block, launch.shared)
            )
            self._launch = replace(launch, grid=grid, block=block, shared=shared)

    def _know_calls(self) -> None:
        """Gives numbers that host code asks other tensors for names of their own; how large an
        element of one is follows from the parameter that its data are handed over as."""
        elements = dict[str, int]()
        for parameter in self._kernel.parameters:
            tensor = data_of(self._arguments.get(parameter.name, ""))
            known = element_of(plain_type(parameter.type).rstrip("*&"), self._known)
            if tensor and known is not None:
                elements[tensor] = known[0].size * known[1]
        self._whole = in_statements(with_element_sizes(self._whole, elements))
        self._names = Names(self._whole, self._names.given, self._known)
        own = self._arguments.items()
        self._arguments = {name: as_member(text).strip() for name, text in own}
        launch = self._launch
        if launch is not None:
            grid, block, shared = (
                as_member(with_element_sizes(text, elements))
                for text in (launch.grid, launch.block, launch.shared)
            )
            self._launch = replace(launch, grid=grid, block=block, shared=shared)

    def _longest(self) -> dict[str, int]:
        """The extents of the accessor with the most axes, as dimensions of the kernel."""
        extents = max(self._extents.values(), key=len, default=())
        return {f"axis {number}": size for number, size in enumerate(extents)}

    def _block_names(self) -> None:
        """Parameters of a launching function that say how large blocks are."""
        for name in self._open():
            if re.search(r"block|thread|tpb|nthr", name, re.IGNORECASE):
                self._names.given.setdefault(name, self._threads)

    def _open(self) -> list[str]:
        """Names in the launch's shape that nothing gives a value."""
        if self._launch is None:
            return []
        shape = (self._launch.block, self._launch.grid, self._launch.shared)
        return self._names.unknown(",".join(shape), self._offset)

    def _integers(self) -> list[Parameter]:
        return [p for p in self._parameters if self._is_integer(plain_type(p.type))]

    def _is_integer(self, type_: str) -> bool:
        element = element_of(type_.rstrip("&"), self._known) if "*" not in type_ else None
        return element is not None and not element[0].is_float and element[1] == 1

    def _sized(self) -> dict[str, int]:
        """A value for each name that an integer argument, or the launch's shape, depends on."""
        names: dict[str, None] = {}
        for parameter in self._integers():
            names.update(dict.fromkeys(self._depends_on(self._arguments[parameter.name])))
        names.update((n, None) for n in self._open() if not self._is_of_memory(n))
        open_ = [n for n in names if n not in self._names.given and not self._is_of_width(n)]
        sized = [name for name in open_ if not _ZERO.fullmatch(_last(name))]
        return {name: self._dimension(_last(name), alone=len(sized) == 1) for name in open_}

    def _is_of_memory(self, name: str) -> bool:
        """Whether the launch's shared memory alone depends on a name that is called so."""
        launch = self._launch
        shape = (launch.block, launch.grid) if launch is not None else ()
        own = self._names.unknown(",".join(shape), self._offset)
        return name not in own and name not in self._passed and is_of_launch(name)

    def _is_of_width(self, name: str) -> bool:
        """Whether the width of warps gives the name a value."""
        given = self._names.given
        twice = Names(self._whole, given | {w: 2 * given[w] for w in _WIDTHS}, self._known)
        value = self._names.value(name, self._offset)
        return value is not None and value != twice.value(name, self._offset)

    def _depends_on(self, text: str) -> list[str]:
        """The names in an argument; of one that the launching function computes, those that it is
        computed from, and none where it is a small constant there."""
        if text.isdigit():
            return []
        if not re.fullmatch(r"[\w:.>\- ]+", text):
            return self._names.free(text)
        if not self._names.is_local(text, self._offset):
            return [text]
        unknown = self._names.unknown(text, self._offset)
        value = self._names.value(text, self._offset)
        is_small = value is not None and 0 <= value <= _SMALL
        return unknown or ([] if is_small else [text])

    def _dimension(self, name: str, *, alone: bool) -> int:
        scale, of_window = self._scale, self._of_window(name)
        if of_window is not None:
            return of_window
        if _ZERO.fullmatch(name):
            return 0
        if scale.alike:
            return max((extents[0] for extents in self._extents.values()), default=scale.alike)
        if alone and (_TOTAL.fullmatch(name) or self._is_guard(name)):
            return scale.total
        for pattern, size in (
            (_BATCH, scale.batch),
            (_HEADS, scale.heads),
            (_INNER, scale.inner),
            (_ROWS, scale.rows),
            (_TOTAL, scale.inner),
        ):
            if pattern.fullmatch(name):
                return size
        return scale.inner if self._is_guard(name) or self._is_stride(name) else 4

    def _of_window(self, name: str) -> int | None:
        if self._is_window and _KERNEL.fullmatch(name):
            return 3
        around = _AROUND.fullmatch(name) or _STEP.fullmatch(name)
        return 1 if self._is_window and around else None

    def _is_stride(self, name: str) -> bool:
        """Whether an index is multiplied by it, as of a row."""
        plain = re.escape(name)
        return re.search(rf"\b\w+\s*\*\s*{plain}\s*[+\]]", self._text) is not None

    def _is_guard(self, name: str) -> bool:
        return re.search(rf"(<=?|>=?)\s*\(?{re.escape(name)}\b", self._text) is not None

    # ---- arguments

    def _whole_argument(self, parameter: Parameter, members: Sequence[Parameter]) -> Argument:
        if tuple(members) == (parameter,):
            return self._argument(parameter)
        values = tuple(map(self._argument, members))
        type_ = bound_type(plain_type(parameter.type).rstrip("&"), self._bound)
        return StructValue(
            parameter.name, type_, tuple(v for v in values if not isinstance(v, StructValue))
        )

    def _argument(self, parameter: Parameter) -> Argument:
        type_ = plain_type(parameter.type)
        spelled = type_.rstrip("*&[]")
        bound = self._bound
        if _TAG.fullmatch(type_):
            tag = bound_type(spelled, bound)
            return Scalar(parameter.name, tag, f"{tag}{{}}")
        if parameter.name in self._extents:
            return self._tensor(parameter, bound)
        found = element_of(spelled, self._elements)
        assert found is not None, parameter  # _impossible() has looked
        element, lanes = found
        dtype = bound_type(spelled, bound)
        if not type_.endswith(("*", "]")):
            if self._is_integer(type_):
                return Scalar(parameter.name, dtype, str(self._value(parameter.name)))
            return Scalar(parameter.name, dtype, _real(parameter.name))
        constant = re.search(r"\bconst\b", parameter.type) is not None
        bytes_ = self._allocated(self._arguments[parameter.name])
        spans = max([math.prod(self._spans()), *map(strides.elements, self._tensors)])
        size = min(spans, _MOST_ELEMENTS) * self._scale.room
        size = max(size, min(bytes_ // (element.size * lanes), _MOST_ELEMENTS))
        if element.is_float:
            values = "uniform" if self._scale.unit else "normal"
        elif self._scale.bits:
            values = f"range(0,{_any_value(element.size)})"
        elif constant or "atomic" not in self._text:
            values = f"range(0,{self._index_bound()})"
        else:
            values = "zeros"
        size = min(size, _MOST_ELEMENTS // lanes)
        return Buffer(parameter.name, dtype, size, values, output=not constant)

    def _tensor(self, parameter: Parameter, bound: Mapping[str, str]) -> Tensor:
        """The tensor that an accessor shows; whole numbers in it may be indices."""
        accessor = accessor_of(parameter.type, self._known)
        assert accessor is not None, parameter  # it has extents
        known, extents = element_of(accessor.element, self._known), self._extents[parameter.name]
        is_float = known is not None and known[0].is_float
        values = "normal" if is_float else f"range(0,{self._index_bound()})"
        element, name = bound_type(accessor.element, bound), parameter.name
        data = Buffer(name, element, math.prod(extents), values, output=True)
        return Tensor(bound_type(plain_type(parameter.type).rstrip("&"), bound), extents, data)

    def _allocated(self, name: str) -> int:
        """Bytes that the host's code has for a buffer of this name; 0 where it does not say."""
        if not name.isidentifier():
            return 0
        found = re.search(_ALLOCATION.format(name), self._whole)
        if found is None:
            return 0
        size = split(self._whole[found.end() : found.end() + 300].partition(";")[0])[0]
        bytes_ = self._names.value(_closed(size), found.start())
        return bytes_ if bytes_ is not None and bytes_ > 0 else 0

    def _spans(self) -> list[int]:
        """Sizes of dimensions. A dense tensor's strides follow from them and are none."""
        of_tensors = {axis.stride for tensor in self._tensors for axis in tensor}
        sizes = [s for name, s in self._dimensions.items() if s and name not in of_tensors]
        return sizes or [self._scale.total]

    def _index_bound(self) -> int:
        """The bound of values in an integer input, which may be indices: within the smallest
        dimension."""
        spans = [size for size in self._spans() if size > 1]
        bound = min(spans, default=2)
        return bound if self._scale.room == 1 else min(bound, 4)

    def _value(self, name: str) -> int:
        text = self._arguments[name]
        if self._scale.named and (
            asked := re.search(rf"\b{re.escape(name)}\s*==\s*(\d+)\b", self._text)
        ):
            return int(asked[1])
        value = self._dimensions.get(text)
        if value is None:
            value = self._names.value(text, self._offset)
            if value == 0 and not text.isdigit() and not _ZERO.fullmatch(name):
                value = self._scale.least
        value = 4 if value is None else value
        return max(value - _place(name), min(value, 1)) if "[" in text else value

    # ---- the launch

    def _block(self) -> Size:
        block = None
        if self._launch is not None and self._launch.block:
            block = self._names.shape(self._launch.block, self._offset)
        is_drawn = BLOCK in self._unsaid and self._threads != THREADS[0]
        if block is None or math.prod(block) > 1024 or is_drawn:
            self._unsaid.add(BLOCK)
            bound = self._names.value(self._kernel.bounds[0], 0) if self._kernel.bounds else None
            least = 1024 if bound and not is_drawn else self._threads
            threads = min(bound or least, least, 1024)
            side = math.isqrt(threads)
            block = (side, side, 1) if "threadIdx.y" in self._text else (threads, 1, 1)
        return block

    def _grid(self, block: Size) -> Size:
        grid = None
        if self._launch is not None and self._launch.grid:
            grid = self._names.shape(self._launch.grid, self._offset)
        if grid is None:
            self._unsaid.add(GRID)
            grid = self._covering(block)
        elif math.prod(grid) > _MOST_BLOCKS:
            grid = _first_of(grid)
        if "gridDim" in self._text and math.prod(grid) * math.prod(block) > _MOST_THREADS:
            blocks = max(_MOST_THREADS // math.prod(block), 2)  # its threads go on in strides
            grid = (min(grid[0], blocks), min(grid[1], 2), min(grid[2], 2))
        return grid

    def _covering(self, block: Size) -> Size:
        """A thread for each element where threads count through the grid, else a block for each
        of the first dimension."""
        spans = self._spans()
        if "blockIdx.y" in self._text or "threadIdx.y" in self._text:
            y, x = (spans[0], spans[-1]) if len(spans) > 1 else (spans[0], spans[0])
            z = 2 if "blockIdx.z" in self._text else 1
            return (-(-x // block[0]), min(-(-y // block[1]), 256), z)
        if re.search(r"blockIdx\.x\s*\*\s*(blockDim\.x|\w+)\s*\+\s*threadIdx\.x", self._text):
            return (min(-(-math.prod(spans) // block[0]), _MOST_BLOCKS), 1, 1)
        return (min(spans[0], 64), 1, 1)

    def _shared(self) -> int | str:
        text = self._launch.shared if self._launch is not None else ""
        size = self._names.value(text, self._offset) if text else 0
        if not has_dynamic_memory(self._asking):
            self._unsaid.discard(SHARED)
            return size or 0
        if size is not None and self._launch is not None:
            return size
        if constant := self._of_class(text):
            self._unsaid.discard(SHARED)
            return constant
        self._unsaid.add(SHARED)
        return max(min(_SHARED_BYTES, _MOST_SHARED - self._static_bytes()), 0)

    def _of_class(self, text: str) -> str:
        """A constant of a class that the instance names, which the case's compiler computes."""
        reached = self._names.before(self._offset)
        for _ in range(4):
            if text not in reached:
                break
            text = reached[text].strip()
        match, classes = _OF_CLASS.fullmatch(text), {**self._known, **self._bound_names}
        of = classes.get(match[1], "") if match else ""
        return f"{of}::{match[2]}" if match and "<" in of else ""

    def _static_bytes(self) -> int:
        """The bytes of shared arrays whose sizes are known."""
        total = 0
        for array in _SHARED_ARRAY.finditer(self._text):
            element = element_of(array[1].strip(), self._known)
            sizes = re.findall(r"\[([^\]]*)\]", array[2])
            known = [self._names.value(size, self._offset) for size in sizes]
            if element is not None and None not in known:
                total += element[0].size * element[1] * math.prod(n for n in known if n)
        return total


def _first_of(grid: Size) -> Size:
    """A launch's first blocks, along each axis."""
    x, y, z = grid
    z = min(z, 16)
    y = min(y, max(_MOST_BLOCKS // (16 * z), 1))
    return min(x, _MOST_BLOCKS // (y * z)), y, z


def _closed(text: str) -> str:
    """The text up to the parenthesis that nothing in it opens."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return text[:at]
    return text


def _any_value(bytes_: int) -> int:
    """A range's end that is not a power of two, so that the last bits of its numbers differ."""
    return (9 << min(8 * bytes_, 32)) // 10 - 1


def _place(name: str) -> int:
    """Where an element is in its array, as ``2`` of ``p.sizes[2]``: no two of the first have one
    value, which would hide that one is taken for another. 0 for what is not in one."""
    return sum(map(int, re.findall(r"\[(\d{1,3})\]", name)))


def _real(name: str) -> str:
    if _EPSILON.fullmatch(name):
        return "1e-5f"
    if _DECAY.fullmatch(name):
        return "0.9f"
    return f"{(_place(name) + 4) / 8}f"


def _last(name: str) -> str:
    """``p->size`` is called ``size``."""
    return of_axis(re.split(r"\.|->", name)[-1].strip())
