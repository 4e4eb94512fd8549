"""Tensors and other values as they cross the C interface of the executor's runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

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
NONE, BOOL, INT, REAL, TEXT, TENSOR, LIST = range(7)
#: What cudaMalloc's addresses are multiples of: a view keeps its distance to such a one.
_ALIGNMENT = 256
_MOST_DIMS = 16


class _Payload(ctypes.Union):
    pass


class TensorValue(ctypes.Structure):
    """simt::lite::Value, see include/simt/lite.h."""

    _anonymous_ = ("payload",)
    kind: int
    count: int
    whole: int
    number: float
    characters: bytes | None
    tensor: int | None


items: ctypes._Pointer[TensorValue]


_Payload._fields_ = [
    ("whole", ctypes.c_int64),
    ("number", ctypes.c_double),
    ("characters", ctypes.c_char_p),
    ("tensor", ctypes.c_void_p),
    ("items", ctypes.POINTER(TensorValue)),
]
TensorValue._fields_ = [("kind", ctypes.c_int64), ("count", ctypes.c_int64), ("payload", _Payload)]


def tensors(value: object) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)


@cache
def dtype_numbers() -> dict[torch.dtype, int]:
    import torch

    return {getattr(torch, name): n for n, name in DTYPES.items() if hasattr(torch, name)}


def _bytes_at(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


@dataclass
class _Copy:
    """Bytes [begin, end) of a torch storage, and the guarded memory that stands for them."""

    storage: torch.UntypedStorage
    begin: int
    end: int
    handle: int = 0
    address: int = 0


class TensorMemory:
    """The tensors of one call. Those that share a storage share it on the other side too."""

    def __init__(self, library: ctypes.CDLL, values: Sequence[object]) -> None:
        self._library = library
        self._copies: dict[int, _Copy] = {}
        # Handles, and the tensors that they stand for.
        self._views: list[tuple[int, torch.Tensor]] = []
        self._kept: list[object] = []
        for tensor in tensors(values):
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
            handle = self._library.simt_torch_memory(size, host, True)
            if not handle:
                raise MemoryError(f"no memory for a tensor of {size} bytes")
            copy.handle, copy.address = handle, self._info(handle)[3]

    def pass_in(self, to: TensorValue, type_: str, value: Any) -> None:
        if value is None:
            to.kind = NONE
        elif type_.startswith("Optional["):
            self.pass_in(to, type_[9:-1], value)
        elif type_.startswith("List["):
            items = (TensorValue * max(len(value), 1))()
            self._kept.append(items)
            to.kind, to.count = LIST, len(value)
            to.items = ctypes.cast(items, ctypes.POINTER(TensorValue))
            for i, item in enumerate(value):
                self.pass_in(items[i], type_[5:-1], item)
        elif type_ == "Tensor":
            to.kind, to.tensor = TENSOR, self._view(value)
        elif type_ == "dtype":
            to.kind, to.whole = INT, dtype_numbers()[value]
        elif type_ == "str":
            to.kind, to.characters = TEXT, value.encode()
            self._kept.append(value)
        elif isinstance(value, bool):
            to.kind, to.whole = BOOL, value
        elif type_ == "float" or isinstance(value, float):
            to.kind, to.number = REAL, value
        else:
            to.kind, to.whole = INT, value

    def _view(self, tensor: torch.Tensor) -> int:
        copy = self._copies[tensor.untyped_storage().data_ptr()]
        offset = tensor.storage_offset() - copy.begin // tensor.element_size()
        handle: int | None = self._library.simt_torch_view(
            copy.handle,
            dtype_numbers()[tensor.dtype],
            tensor.dim(),
            numbers(tensor.shape),
            numbers(tensor.stride()),
            offset,
        )
        if not handle:
            raise RuntimeError(self._library.simt_torch_error_text().decode())
        self._views.append((handle, tensor))
        return handle

    def tensor_of(self, handle: int | None) -> torch.Tensor | None:
        """The tensor that was passed as this one."""
        return next((tensor for known, tensor in self._views if known == handle), None)

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

    def take_out(self, value: TensorValue, type_: str) -> object:
        match value.kind:
            case 0:  # NONE
                return None
            case 1:  # BOOL
                return bool(value.whole)
            case 2:  # INT
                return value.whole
            case 3:  # REAL
                return value.number
            case 4:  # TEXT
                return (value.characters or b"").decode(errors="replace")
            case 5:  # TENSOR
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
        head, sizes, strides = numbers([0] * 3), numbers([0] * _MOST_DIMS), numbers([0] * 16)
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


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
    numbers = ctypes.POINTER(number)
    types: dict[str, tuple[type[object] | None, list[type[object]]]] = {
        "module": (pointer, []),
        "library": (pointer, []),
        "describe": (text, [pointer]),
        "call": (
            ctypes.c_int,
            [pointer, ctypes.c_int, ctypes.POINTER(TensorValue), ctypes.POINTER(TensorValue)],
        ),
        "error_kind": (text, []),
        "error_text": (text, []),
        "error_name": (text, [ctypes.c_int]),
        "last_error": (ctypes.c_int, []),
        "drop": (None, [ctypes.POINTER(TensorValue)]),
        "memory": (pointer, [number, pointer, ctypes.c_int]),
        "assign": (ctypes.c_int, [pointer, pointer]),
        "retain": (None, [pointer]),
        "is_device": (ctypes.c_int, [pointer]),
        "list": (ctypes.POINTER(TensorValue), [number]),
        "text": (pointer, [text]),
        "fail": (None, [text, text]),
        "delegate": (None, [pointer]),
        "maker": (pointer, [pointer, ctypes.POINTER(number)]),
        "release_maker": (None, [pointer]),
        "maker_inputs": (number, [pointer]),
        "maker_input": (pointer, [pointer, number]),
        "backward": (
            ctypes.c_int,
            [pointer, ctypes.POINTER(TensorValue), number, ctypes.POINTER(TensorValue)],
        ),
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
