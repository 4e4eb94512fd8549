"""Calls extensions written against PyTorch's C++ API that were built for the executor.

Such a library lists its functions with PYBIND11_MODULE. Tensors that are passed to one are copied
into guarded memory, where they say that they are on the GPU; what the function did to them is
copied back.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkern.errors import LaunchError
from portkern.simt.execute import runtime_library

if TYPE_CHECKING:
    import torch

#: c10::ScalarType's numbers.
DTYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
    15: "bfloat16",
    23: "float8_e5m2",
    24: "float8_e4m3fn",
    25: "float8_e5m2fnuz",
    26: "float8_e4m3fnuz",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}
_NONE, _BOOL, _INT, _REAL, _TEXT, _TENSOR, _LIST = range(7)
#: What cudaMalloc's addresses are multiples of: a view keeps its distance to such a one.
_ALIGNMENT = 256
_MOST_DIMS = 16
_EXCEPTIONS: Mapping[str, type[Exception]] = {
    "IndexError": IndexError,
    "ValueError": ValueError,
    "TypeError": TypeError,
    "NotImplementedError": NotImplementedError,
}


class _Payload(ctypes.Union):
    pass


class _Value(ctypes.Structure):
    """simt::lite::Value, see include/simt/lite.h."""

    _anonymous_ = ("payload",)
    kind: int
    count: int
    whole: int
    number: float
    characters: bytes | None
    tensor: int | None


items: ctypes._Pointer[_Value]


_Payload._fields_ = [
    ("whole", ctypes.c_int64),
    ("number", ctypes.c_double),
    ("characters", ctypes.c_char_p),
    ("tensor", ctypes.c_void_p),
    ("items", ctypes.POINTER(_Value)),
]
_Value._fields_ = [("kind", ctypes.c_int64), ("count", ctypes.c_int64), ("payload", _Payload)]


@dataclass(frozen=True)
class Argument:
    """``name`` is empty where only a position is known; ``type`` is ``Optional[Tensor]`` etc."""

    name: str
    type: str
    default: object = ...


@dataclass(frozen=True)
class Overload:
    """One C++ function: the ``index``-th of its library."""

    index: int
    arguments: tuple[Argument, ...]
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
        self.__name__, self.__doc__ = name, doc
        self._extension = extension

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
        self._library = _declare(library)
        self._module = getattr(library, table)()
        described = json.loads(library.simt_torch_describe(self._module))
        self.name: str = described["name"]
        self.doc: str = described["doc"]
        self.functions: dict[str, BoundFunction] = {}
        for index, entry in enumerate(described["functions"]):
            name = entry["name"]
            function = self.functions.setdefault(name, BoundFunction(self, name, entry["doc"]))
            arguments = tuple(Argument(**a) for a in entry["arguments"])
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
        library = self._library
        memory = _Memory(library, values)
        passed = (_Value * max(len(values), 1))()
        result = _Value()
        try:
            memory.copy_in()
            for i, (argument, value) in enumerate(zip(overload.arguments, values, strict=True)):
                memory.pass_in(passed[i], argument.type, value)
            threw = library.simt_torch_call(
                self._module, overload.index, passed, ctypes.byref(result)
            )
            memory.copy_back()
            code = library.simt_torch_last_error()
            returned = None if threw else memory.take_out(result, overload.result)
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


def load(library: Path, *, runtime: Path | None = None) -> Extension:
    """Open an extension built for the executor. Raises ValueError if it has neither
    PYBIND11_MODULE nor TORCH_LIBRARY.

    ``runtime`` is the executor's own library, this machine's when None.
    """
    _runtime(runtime)
    opened = ctypes.CDLL(str(library))
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


# ---- values


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


def _tensors(value: object) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


@cache
def _dtype_numbers() -> dict[torch.dtype, int]:
    import torch

    return {getattr(torch, name): n for n, name in DTYPES.items() if hasattr(torch, name)}


def _bytes_at(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def _numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


@dataclass
class _Copy:
    """Bytes [begin, end) of a torch storage, and the guarded memory that stands for them."""

    storage: torch.UntypedStorage
    begin: int
    end: int
    handle: int = 0
    address: int = 0


class _Memory:
    """The tensors of one call. Those that share a storage share it on the other side too."""

    def __init__(self, library: ctypes.CDLL, values: Sequence[object]) -> None:
        self._library = library
        self._copies: dict[int, _Copy] = {}
        # Handles, and the tensors that they stand for.
        self._views: list[tuple[int, torch.Tensor]] = []
        self._kept: list[object] = []
        for tensor in _tensors(values):
            self._span(tensor)

    def _span(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cpu" or tensor.layout is not _strided():
            raise TypeError(
                f"Expected a dense tensor on the CPU, got {tensor.device} {tensor.layout}"
            )
        size, storage = tensor.element_size(), tensor.untyped_storage()
        begin = int(tensor.storage_offset()) * size
        reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        end = begin + (reach + 1) * size if tensor.numel() else begin
        begin -= begin % _ALIGNMENT
        copy = self._copies.setdefault(storage.data_ptr(), _Copy(storage, begin, end))
        copy.begin, copy.end = min(copy.begin, begin), max(copy.end, end)

    def copy_in(self) -> None:
        for copy in self._copies.values():
            size, host = copy.end - copy.begin, copy.storage.data_ptr() + copy.begin
            handle = self._library.simt_torch_memory(size, host)
            if not handle:
                raise MemoryError(f"no memory for a tensor of {size} bytes")
            copy.handle, copy.address = handle, self._info(handle)[3]

    def pass_in(self, to: _Value, type_: str, value: Any) -> None:
        if value is None:
            to.kind = _NONE
        elif type_.startswith("Optional["):
            self.pass_in(to, type_[9:-1], value)
        elif type_.startswith("List["):
            items = (_Value * max(len(value), 1))()
            self._kept.append(items)
            to.kind, to.count = _LIST, len(value)
            to.items = ctypes.cast(items, ctypes.POINTER(_Value))
            for i, item in enumerate(value):
                self.pass_in(items[i], type_[5:-1], item)
        elif type_ == "Tensor":
            to.kind, to.tensor = _TENSOR, self._view(value)
        elif type_ == "dtype":
            to.kind, to.whole = _INT, _dtype_numbers()[value]
        elif type_ == "str":
            to.kind, to.characters = _TEXT, value.encode()
            self._kept.append(value)
        elif isinstance(value, bool):
            to.kind, to.whole = _BOOL, value
        elif type_ == "float" or isinstance(value, float):
            to.kind, to.number = _REAL, value
        else:
            to.kind, to.whole = _INT, value

    def _view(self, tensor: torch.Tensor) -> int:
        copy = self._copies[tensor.untyped_storage().data_ptr()]
        offset = tensor.storage_offset() - copy.begin // tensor.element_size()
        handle: int | None = self._library.simt_torch_view(
            copy.handle,
            _dtype_numbers()[tensor.dtype],
            tensor.dim(),
            _numbers(tensor.shape),
            _numbers(tensor.stride()),
            offset,
        )
        if not handle:
            raise RuntimeError(self._library.simt_torch_error_text().decode())
        self._views.append((handle, tensor))
        return handle

    def copy_back(self) -> None:
        """Writes back what was changed; unchanged memory may be read-only."""
        for copy in self._copies.values():
            size, host = copy.end - copy.begin, copy.storage.data_ptr() + copy.begin
            if not size:
                continue
            now = ctypes.create_string_buffer(size)
            self._library.simt_read(now, copy.address, size)
            if _bytes_at(host, size) != now.raw:
                ctypes.memmove(host, now, size)

    def take_out(self, value: _Value, type_: str) -> object:
        match value.kind:
            case 0:  # _NONE
                return None
            case 1:  # _BOOL
                return bool(value.whole)
            case 2:  # _INT
                return value.whole
            case 3:  # _REAL
                return value.number
            case 4:  # _TEXT
                return (value.characters or b"").decode(errors="replace")
            case 5:  # _TENSOR
                return self._tensor(value.tensor or 0)
        items = [self.take_out(value.items[i], "") for i in range(value.count)]
        return tuple(items) if type_.startswith("Tuple[") else items

    def _tensor(self, handle: int) -> torch.Tensor:
        import torch

        for known, tensor in self._views:
            if self._info(known) == self._info(handle):
                return tensor
        dtype_number, sizes, strides, address, size, offset = self._info(handle)
        dtype = getattr(torch, DTYPES[dtype_number])
        for copy in self._copies.values():
            if copy.address == address:
                begin = copy.begin // dtype.itemsize + offset
                return torch.empty(0, dtype=dtype).set_(copy.storage, begin, sizes, strides)
        whole = torch.empty(size // dtype.itemsize, dtype=dtype)
        if size:
            self._library.simt_read(whole.data_ptr(), address, size)
        return whole.as_strided(sizes, strides, offset)

    def _info(self, handle: int) -> tuple[int, tuple[int, ...], tuple[int, ...], int, int, int]:
        """Element type, sizes, strides, storage and its bytes, offset."""
        head, sizes, strides = _numbers([0] * 3), _numbers([0] * _MOST_DIMS), _numbers([0] * 16)
        address, size = ctypes.c_void_p(), ctypes.c_int64()
        self._library.simt_torch_info(
            handle, head, sizes, strides, ctypes.byref(address), ctypes.byref(size)
        )
        dims = head[1]
        return (
            head[0],
            tuple(sizes[:dims]),
            tuple(strides[:dims]),
            address.value or 0,
            size.value,
            head[2],
        )

    def release(self) -> None:
        for handle, _ in self._views:
            self._library.simt_torch_release(handle)
        for copy in self._copies.values():
            if copy.handle:
                self._library.simt_torch_release(copy.handle)
        self._views.clear()
        self._copies.clear()


def _strided() -> torch.layout:
    import torch

    return torch.strided


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
    numbers = ctypes.POINTER(number)
    types: dict[str, tuple[type[object] | None, list[type[object]]]] = {
        "module": (pointer, []),
        "library": (pointer, []),
        "describe": (text, [pointer]),
        "call": (
            ctypes.c_int,
            [pointer, ctypes.c_int, ctypes.POINTER(_Value), ctypes.POINTER(_Value)],
        ),
        "error_kind": (text, []),
        "error_text": (text, []),
        "error_name": (text, [ctypes.c_int]),
        "last_error": (ctypes.c_int, []),
        "drop": (None, [ctypes.POINTER(_Value)]),
        "memory": (pointer, [number, pointer]),
        "view": (pointer, [pointer, ctypes.c_int, ctypes.c_int, numbers, numbers, number]),
        "release": (None, [pointer]),
        "info": (None, [pointer, numbers, numbers, numbers, ctypes.POINTER(pointer), numbers]),
    }
    for name, (result, arguments) in types.items():
        function = getattr(library, f"simt_torch_{name}", None)
        if function is None:  # the module's, where there is no PYBIND11_MODULE
            continue
        function.restype, function.argtypes = result, arguments
    library.simt_read.restype = None
    library.simt_read.argtypes = [pointer, pointer, ctypes.c_size_t]
    return library
