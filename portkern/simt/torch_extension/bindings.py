"""Calls extensions written against PyTorch's C++ API that were built for the executor.

Such a library lists its functions with PYBIND11_MODULE. Tensors that are passed to one are copied
into guarded memory, where they say that they are on the GPU; what the function did to them is
copied back.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from portkern.errors import LaunchError
from portkern.simt.execute import runtime_library
from portkern.simt.torch_extension import gradients, operations
from portkern.simt.torch_extension.values import TensorMemory, TensorValue, declare, tensors

_EXCEPTIONS: Mapping[str, type[Exception]] = {
    "IndexError": IndexError,
    "ValueError": ValueError,
    "TypeError": TypeError,
    "NotImplementedError": NotImplementedError,
}


@dataclass(frozen=True)
class BoundArgument:
    """``name`` is empty where only a position is known; ``type`` is ``Optional[Tensor]`` etc."""

    name: str
    type: str
    default: object = ...


@dataclass(frozen=True)
class Overload:
    """One C++ function: the ``index``-th of its library."""

    index: int
    arguments: tuple[BoundArgument, ...]
    result: str

    def bind(self, given: Sequence[object], named: Mapping[str, object]) -> list[object] | None:
        """A value for each argument, or None when these are not its arguments."""
        if len(given) > len(self.arguments):
            return None
        rest, values = dict(named), list(given)
        for argument in self.arguments[len(given) :]:
            value = rest.pop(argument.name, argument.default) if argument.name else argument.default
            if value is ...:
                return None
            values.append(value)
        fits = all(_accepts(a.type, v) for a, v in zip(self.arguments, values, strict=True))
        return values if fits and not rest else None

    def __str__(self) -> str:
        arguments = ", ".join(
            f"{a.name or f'arg{i}'}: {a.type}" for i, a in enumerate(self.arguments)
        )
        return f"({arguments}) -> {self.result}"


class BoundFunction:
    """A function of an extension, callable with torch tensors on the CPU and Python values.

    Raises what C++ threw (RuntimeError for c10::Error) and LaunchError for a kernel that failed
    without anybody having asked.
    """

    def __init__(self, extension: Extension, name: str, doc: str) -> None:
        self.overloads: list[Overload] = []
        self.__name__: str = name
        self.__doc__: str = doc
        self._extension = extension

    @property
    def schema(self) -> str:
        """Its parameters and result as operators of PyTorch say them: those it was defined with,
        else those of its types. Raises ValueError where it has several, or a type has no such
        name."""
        if "(" in self.__doc__:
            return self.__doc__[self.__doc__.index("(") :]
        [overload] = self.overloads
        parts = [
            f"{_in_schema(a.type)} {a.name or f'_{i}'}" for i, a in enumerate(overload.arguments)
        ]
        return f"({', '.join(parts)}) -> {_in_schema(overload.result)}"

    def __call__(self, *given: object, **named: object) -> Any:
        for overload in self.overloads:
            values = overload.bind(given, named)
            if values is not None:
                return self._extension.call(overload, self.__name__, values)
        known = " or ".join(f"{self.__name__}{o}" for o in self.overloads)
        got = ", ".join(
            [
                *(type(v).__name__ for v in given),
                *(f"{k}={type(v).__name__}" for k, v in named.items()),
            ]
        )
        raise TypeError(f"{self.__name__}({got}): incompatible arguments; expected {known}")


class Extension:
    """A library's functions, by name and as attributes. ``registered`` are those of
    TORCH_LIBRARY, called ``namespace::name``."""

    registered: Extension | None = None

    def __init__(self, library: ctypes.CDLL, table: str) -> None:
        self._library = declare(library)
        self._module = getattr(library, table)()
        described = json.loads(library.simt_torch_describe(self._module))
        self.name: str = described["name"]
        self.doc: str = described["doc"]
        self.functions: dict[str, BoundFunction] = {}
        for index, entry in enumerate(described["functions"]):
            name = entry["name"]
            function = self.functions.setdefault(name, BoundFunction(self, name, entry["doc"]))
            arguments = tuple(BoundArgument(**a) for a in entry["arguments"])
            function.overloads.append(Overload(index, arguments, entry["result"]))

    def __getattr__(self, name: str) -> BoundFunction:
        try:
            return self.functions[name]
        except KeyError:
            known = ", ".join(self.functions)
            raise AttributeError(f"No function {name!r}; the extension has {known}") from None

    def reset(self) -> None:
        """Forget a kernel's fault, after which every call fails, and free what cudaMalloc gave."""
        self._library.simt_reset()

    def call(self, overload: Overload, name: str, values: Sequence[object]) -> object:
        import torch

        with torch._C.DisableTorchFunction():  # here tensors are what they are
            return self._call(overload, name, values)

    def _call(self, overload: Overload, name: str, values: Sequence[object]) -> object:
        types = [argument.type for argument in overload.arguments]

        def run(passed: Any, result: Any) -> int:
            code: int = self._library.simt_torch_call(self._module, overload.index, passed, result)
            return code

        return _run(self._library, name, run, types, values, overload.result)


def _run(
    library: ctypes.CDLL,
    name: str,
    call: Callable[[Any, Any], int],
    types: Sequence[str],
    values: Sequence[object],
    returns: str,
) -> object:
    """Returns what a function of the library returns for these values; gradients are those that
    its own autograd functions calculate."""
    memory, result = TensorMemory(library, values), TensorValue()
    passed = (TensorValue * max(len(values), 1))()
    try:
        memory.copy_in()
        for i, (type_, value) in enumerate(zip(types, values, strict=True)):
            memory.pass_in(passed[i], type_, value)
        threw = call(passed, ctypes.byref(result))
        memory.copy_back()
        code = library.simt_torch_last_error()
        returned = None if threw else memory.take_out(result, returns)
        if not threw and _wants_gradients(values):
            steps = gradients.steps(library, memory, result)
            returned = gradients.attached(returned, steps, partial(_backward, library, name))
    finally:
        library.simt_torch_drop(ctypes.byref(result))
        memory.release()
    if threw:
        kind = library.simt_torch_error_kind().decode()
        text = library.simt_torch_error_text().decode(errors="replace")
        raise _EXCEPTIONS.get(kind, RuntimeError)(text)
    if code:
        raise LaunchError(f"{name} left {library.simt_torch_error_name(code).decode()}")
    return returned


def _backward(
    library: ctypes.CDLL, name: str, step: gradients.Step, of_outputs: Sequence[object]
) -> Sequence[Any]:
    """The gradients of what an autograd function of C++ was given."""

    def run(passed: Any, result: Any) -> int:
        code: int = library.simt_torch_backward(step.maker, passed, len(of_outputs), result)
        return code

    import torch

    types = ["Optional[Tensor]"] * len(of_outputs)
    with torch._C.DisableTorchFunction():
        found: Any = _run(library, f"{name}'s backward", run, types, of_outputs, "List[Tensor]")
    return list(found)


def _wants_gradients(values: Sequence[object]) -> bool:
    import torch

    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors(values))


def load(library: Path, *, runtime: Path | None = None) -> Extension:
    """Open an extension built for the executor. Raises ValueError if it has neither
    PYBIND11_MODULE nor TORCH_LIBRARY.

    ``runtime`` is the executor's own library, this machine's when None.
    """
    _runtime(runtime)
    opened = ctypes.CDLL(str(library))
    operations.serve(declare(opened))
    registered = Extension(opened, "simt_torch_library")
    if not hasattr(opened, "simt_torch_module"):
        if not registered.functions:
            raise ValueError(f"No PYBIND11_MODULE in {library.name}, and no TORCH_LIBRARY")
        registered.registered = registered
        return registered
    extension = Extension(opened, "simt_torch_module")
    extension.registered = registered
    return extension


def mark(name: str) -> None:
    """Puts a name into the recording of launches, before those that follow."""
    _runtime(None).simt_mark(name.encode())


def _runtime(library: Path | None) -> ctypes.CDLL:
    """The executor's runtime. Global, because an extension names it by its soname alone."""
    return ctypes.CDLL(str(library or runtime_library.ready().runtime), mode=ctypes.RTLD_GLOBAL)


def _in_schema(type_: str) -> str:
    outer, _, inner = type_.removesuffix("]").partition("[")
    match outer:
        case "Optional":
            return f"{_in_schema(inner)}?"
        case "List":
            return f"{_in_schema(inner)}[]"
        case "Tuple":
            return f"({', '.join(map(_in_schema, inner.split(', ')))})"
        case "dtype":
            return "ScalarType"
        case "None":
            return "()"
        case "Tensor" | "bool" | "int" | "float" | "str" | "Scalar":
            return outer
    raise ValueError(f"{type_} has no name in a schema")


def _accepts(type_: str, value: object) -> bool:
    """Whether pybind11 would convert ``value`` to ``type_``."""
    import torch

    outer, _, inner = type_.removesuffix("]").partition("[")
    match outer:
        case "Optional":
            return value is None or _accepts(inner, value)
        case "List":
            return isinstance(value, (list, tuple)) and all(_accepts(inner, v) for v in value)
        case "Tensor":
            return isinstance(value, torch.Tensor)
        case "bool":
            return isinstance(value, bool)
        case "int":
            return isinstance(value, int)
        case "float" | "Scalar":
            return isinstance(value, (int, float))
        case "str":
            return isinstance(value, str)
        case "dtype":
            return isinstance(value, torch.dtype)
    return False
