"""Runs ``@triton.jit`` functions of somebody's library in Triton's interpreter, on made-up inputs.

Run as a process of its own, in the jail, for it imports the library:
``python -m portkern.backends.triton.library_interpreter REQUESTS.json``. It prints a line of JSON
before and after each.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import os
import signal
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from portkern.spec import target as targets
from portkern.spec.target import Target

from .interpreter import repair
from .libdevice_functions import in_numpy
from .library_functions import answer_all, as_on, constant_of, function_of, plain

#: Elements of a buffer: more than the strides of a case reach, so that what lies outside is a
#: mistake of the inputs or of the kernel.
REGION = 1 << 20
#: Around each buffer, so that what lies next to it is none of another's.
_MARGIN = 1 << 16
#: Elements of a buffer that are told; of more, as many, at random.
_MOST_TOLD = 1 << 12
_TYPES: Mapping[str, str] = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "i1": "bool",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
Array = npt.NDArray[Any]


def main() -> int:
    os.environ["TRITON_INTERPRET"] = "1"
    return answer_all(Path(sys.argv[1]), _interpreted)


def _interpreted(root: str, request: Mapping[str, Any], each_s: float) -> dict[str, object]:
    target = targets.load(request["target"])
    prepare(target)
    with as_on(target):
        outer = function_of(root, request)
        function = plain(outer)
        constants = {name: constant_of(value) for name, value in request["constants"].items()}
        recorded = request.get("recorded")
        if recorded is None:
            memory = made_up(request["signature"], request["seed"])
            scalars = {name: _scalar(value) for name, value in request["scalars"].items()}
            arguments = {**memory.pointers, **scalars, **constants}
            arguments |= _heuristics(outer, arguments)
        else:
            memory = launched(function, recorded, request["seed"])
            scalars = {name: _scalar(value) for name, value in recorded["scalars"].items()}
            arguments = {**memory.pointers, **scalars, **constants}
        lines = _Lines(function)
        signal.setitimer(signal.ITIMER_PROF, each_s)
        with memory.watched(), _ordered(backwards=request["backwards"]), lines.counted():
            function[tuple(request["grid"])](**arguments)
    answer: dict[str, object] = {"written": memory.told(), "read": memory.read()}
    answer |= {"lines": sorted(lines.seen), "all_lines": sorted(lines.all)}
    return {**answer, "whole": memory.whole()} if request.get("whole") else answer


def prepare(target: Target) -> None:
    """Makes the interpreter of this process compute as a kernel on the target does."""
    from triton import language as tl

    repair()
    in_numpy(target)
    tl.core.dtype.__call__ = _called


def as_in_kernel(kernel: Any, name: str, value: object) -> object:
    """The argument of a launch as the kernel sees it."""
    from triton import language as tl

    kind = getattr(kernel.fn, "__annotations__", {}).get(name)
    is_constant = kind in (tl.constexpr, "tl.constexpr", "constexpr")
    return value if is_constant else _scalar(value)


def _scalar(value: object) -> object:
    """A float is a tensor in a kernel, and none in Triton's interpreter."""
    from triton import language as tl

    return tl.core.dtype.__call__(tl.float32, value) if isinstance(value, float) else value


def _called(type_: object, value: object, **_: object) -> object:
    """``tl.float32(0.0)``, which the compiler has."""
    from triton import language as tl
    from triton.runtime.interpreter import TensorHandle, interpreter_semantic

    if isinstance(value, tl.core.tensor):
        return interpreter_semantic.cast(value, type_)
    number = getattr(value, "value", value)
    return tl.core.tensor(TensorHandle(np.array([number], _TYPES[str(type_)]), type_), type_)


def _heuristics(function: object, arguments: Mapping[str, object]) -> dict[str, object]:
    """The values that code of the library computes from a launch's arguments."""
    values: dict[str, object] = {}
    while hasattr(function, "fn") and hasattr(function, "arg_names"):
        for name, compute in getattr(function, "values", {}).items():
            values[name] = compute({**arguments, **values})
        function = function.fn
    return values


@contextmanager
def _ordered(*, backwards: bool) -> Iterator[None]:
    """The programs of the grid from the last to the first."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    if backwards:
        plain_set = builder.set_grid_idx

        def set_grid_idx(*index: int) -> None:
            plain_set(*(n - 1 - i for n, i in zip(builder.grid_dim, index, strict=True)))

        builder.set_grid_idx = set_grid_idx
    try:
        yield
    finally:
        builder.__dict__.pop("set_grid_idx", None)


class Outside(Exception):
    """An access to none of the buffers."""


class _Buffer:
    """Memory of a kernel; ``type`` is that of its numbers, '' for bfloat16."""

    def __init__(self, name: str, type_: str, values: Array) -> None:
        self.name, self.type = name, type_
        margin = np.zeros(_MARGIN // values.itemsize, values.dtype)
        self.memory = np.concatenate([margin, values, margin])
        self.first = self.memory.ctypes.data + _MARGIN
        self.written, self.is_read = np.zeros(len(values), bool), False

    @property
    def values(self) -> Array:
        margin = _MARGIN // self.memory.itemsize
        return self.memory[margin : margin + len(self.written)]


def made_up(signature: Mapping[str, str], seed: int) -> _Memory:
    """Buffers of a size that no case comes to the end of."""
    import torch

    buffers, pointers = list[_Buffer](), dict[str, object]()
    for name, type_ in signature.items():
        if not type_.startswith("*"):
            continue
        spelled = type_.lstrip("*")
        numbers = _TYPES.get(spelled, "")
        if not numbers and spelled != "bf16":
            raise TypeError(f"'{name}' points to {spelled}, for which there are no values here")
        generator = np.random.default_rng([seed, *name.encode()])
        buffer = _Buffer(name, numbers, _values(numbers or "uint16", name, spelled, generator))
        tensor = torch.from_numpy(buffer.values)
        buffers.append(buffer)
        pointers[name] = tensor.view(torch.bfloat16) if type_ == "*bf16" else tensor
    return _Memory(buffers, pointers)


def launched(function: Any, recorded: Mapping[str, Any], seed: int) -> _Memory:
    """The tensors of a launch that was recorded, made anew. Raises ValueError for a function that
    is not the one that was launched."""
    import torch

    if (line := function.fn.__code__.co_firstlineno) != recorded["line"]:
        name = function.fn.__name__
        raise ValueError(f"{name} of line {recorded['line']} was launched; here it is of {line}")
    buffers, pointers = dict[str, _Buffer](), dict[str, object]()
    for told in recorded["memory"]:
        generator = np.random.default_rng([seed, *told["name"].encode()])
        values = _again(told, generator)
        type_ = "" if told["dtype"] == "bfloat16" else str(values.dtype)
        buffers[told["name"]] = _Buffer(told["name"], type_, values)
    for name, told in recorded["tensors"].items():
        own = torch.from_numpy(buffers[told["memory"]].values)
        whole = own.view(torch.uint8).view(getattr(torch, told["dtype"]))
        pointers[name] = whole.as_strided(told["shape"], told["stride"], told["offset"])
    return _Memory(list(buffers.values()), pointers)


def _again(told: Mapping[str, Any], generator: np.random.Generator) -> Array:
    """The values of a recorded tensor's memory: numbers between the same bounds, or the same."""
    try:
        dtype = np.dtype("uint16" if told["dtype"] == "bfloat16" else told["dtype"])
    except TypeError:  # of eight bits, which NumPy lacks
        dtype = np.dtype("uint8")
    count = told["bytes"] // dtype.itemsize
    if told["exactly"] is not None:
        raw = zlib.decompress(base64.b64decode(told["exactly"]))
        exactly: Array = np.frombuffer(raw, np.uint8)[: count * dtype.itemsize].view(dtype)
        return exactly.copy()
    if told["of"] is not None:
        values: Array = generator.choice(np.array(told["of"], np.float64), count)
    else:
        low, high = told["between"]
        values = low + (high - low) * generator.random(count)
    if told["dtype"] == "bfloat16":
        narrow: Array = values.astype(np.float32).view(np.uint32) >> 16
        return narrow.astype(np.uint16)
    return values.astype(dtype)


def _values(type_: str, name: str, spelled: str, generator: np.random.Generator) -> Array:
    if spelled == "bf16":
        normal = generator.standard_normal(REGION, np.float32)
        return (normal.view(np.uint32) >> 16).astype(np.uint16)
    dtype = np.dtype(type_)
    if dtype.kind == "f":
        return generator.standard_normal(REGION, np.float32).astype(dtype)
    if any(word in name.lower() for word in ("lock", "count", "semaphore", "flag")):
        return np.zeros(REGION, dtype)
    return generator.integers(0, 2 if dtype.kind == "b" else 4, REGION).astype(dtype)


class _Memory:
    """A kernel's buffers, and which of their elements it wrote; ``pointers`` are the tensors that
    it is given."""

    def __init__(self, buffers: Sequence[_Buffer], pointers: Mapping[str, object]) -> None:
        self.pointers = pointers
        self._buffers = sorted(buffers, key=lambda buffer: buffer.first)
        self._starts = np.array([buffer.first for buffer in self._buffers], np.uint64)

    @contextmanager
    def watched(self) -> Iterator[None]:
        from triton.runtime import interpreter

        builder = interpreter.interpreter_builder
        kinds: Mapping[str, tuple[int, int | None, str]] = {
            "create_masked_load": (0, 1, "r"),
            "create_masked_store": (0, 2, "w"),
            "create_atomic_rmw": (1, 3, "rw"),
            "create_atomic_cas": (0, None, "rw"),
        }
        for name, (address, mask, does) in kinds.items():
            setattr(builder, name, self._checked(getattr(builder, name), address, mask, does))
        try:
            yield
        finally:
            for name in kinds:
                builder.__dict__.pop(name, None)

    def _checked(
        self, original: Callable[..., Any], address: int, mask: int | None, does: str
    ) -> Callable[..., object]:
        def call(*args: Any) -> object:
            places = np.asarray(args[address].data, np.uint64)
            if mask is not None:
                active = np.broadcast_to(np.asarray(args[mask].data, bool), places.shape)
                places = places[active]
            self._note(places.ravel(), does)
            return original(*args)

        return call

    def _note(self, places: npt.NDArray[np.uint64], does: str) -> None:
        if not places.size:
            return
        which = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(which):
            buffer = self._buffers[max(number, 0)]
            own = places[which == number].astype(np.int64) - buffer.first
            at = own // buffer.memory.itemsize
            if number < 0 or at.max() >= len(buffer.written) or at.min() < 0:
                verb = "writes" if "w" in does else "reads"
                raise Outside(f"{verb} outside its buffers, {int(at.max())} past '{buffer.name}'")
            buffer.is_read |= "r" in does
            if "w" in does:
                buffer.written[at] = True

    def told(self) -> dict[str, dict[str, object]]:
        """The values that were written, by parameter; of many, a part and a digest of where they
        lie."""
        return {
            buffer.name: _told(buffer.values, np.flatnonzero(buffer.written), buffer.type)
            for buffer in self._buffers
            if buffer.written.any()
        }

    def read(self) -> list[str]:
        return [buffer.name for buffer in self._buffers if buffer.is_read]

    def whole(self) -> dict[str, dict[str, object]]:
        """All values, whoever wrote them."""
        return {
            buffer.name: _told(buffer.values, np.arange(len(buffer.written)), buffer.type)
            for buffer in self._buffers
        }


def _told(values: Array, places: npt.NDArray[np.intp], type_: str) -> dict[str, object]:
    shown = places
    if len(places) > _MOST_TOLD:  # at random: even steps may fall on one column
        chosen = np.random.default_rng(len(places)).choice(len(places), _MOST_TOLD, replace=False)
        shown = places[np.sort(chosen)]
    return {
        "type": {"bool": "uint8", "": "bfloat16"}.get(type_, type_),
        "count": len(places),
        "places": hashlib.sha256(places.tobytes()).hexdigest(),
        "values": base64.b64encode(values[shown].tobytes()).decode("ascii"),
    }


class _Lines:
    """Which lines of the kernel ran, and of the functions that it may call; one of another file is
    told with that file's name."""

    def __init__(self, function: Any) -> None:
        own, self._files = function.fn.__code__.co_filename, dict[CodeType, str]()
        self.all, self.seen = set[str](), set[str]()
        for one in _reachable(function):
            code, file = one.rewrite().__code__, one.fn.__code__.co_filename
            self._files[code] = "" if file == own else f"{one.fn.__module__}:"
            lines = {line for _, _, line in code.co_lines() if line and line > code.co_firstlineno}
            self.all |= {f"{self._files[code]}{line}" for line in lines}

    @contextmanager
    def counted(self) -> Iterator[None]:
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(None)
            self.seen &= self.all

    def _called(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        return self._line if frame.f_code in self._files else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Callable[..., object]:
        self.seen.add(f"{self._files[frame.f_code]}{frame.f_lineno}")
        return self._line


def _reachable(function: Any) -> list[Any]:
    """The kernel and the functions that it names, one through another; none of Triton's own."""
    found: dict[object, Any] = {}
    left = [function]
    while left:
        one = plain(left.pop())
        fn = getattr(one, "fn", None)
        if not isinstance(fn, FunctionType) or not hasattr(one, "rewrite") or _is_triton(fn):
            continue
        if fn not in found:
            found[fn] = one
            left += _named(fn)
    return list(found.values())


def _named(fn: FunctionType) -> list[object]:
    """The values of names in a function, and of modules' attributes in it."""
    known = inspect.getclosurevars(fn)
    named = last = [*known.nonlocals.values(), *known.globals.values()]
    for _ in range(4):  # so many packages, one in another
        modules = [one for one in last if isinstance(one, ModuleType) and not _is_triton(one)]
        last = [vars(m)[name] for m in modules for name in fn.__code__.co_names if name in vars(m)]
        named = [*named, *last]
    return named


def _is_triton(one: FunctionType | ModuleType) -> bool:
    name = one.__name__ if isinstance(one, ModuleType) else one.__module__
    return name.partition(".")[0] == "triton"


if __name__ == "__main__":
    sys.exit(main())
