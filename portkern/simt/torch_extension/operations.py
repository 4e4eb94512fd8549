"""Operations of PyTorch that an extension's C++ asks for and that the executor's runtime has none
of its own for: the torch of this process does them, on copies of the tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from portkern.simt.torch_extension import values
from portkern.simt.torch_extension.values import TensorMemory, TensorValue, dtype_numbers

if TYPE_CHECKING:
    import torch

#: Errors that C++ has an exception of its own for; all others are RuntimeError.
_KINDS = ("IndexError", "ValueError", "TypeError", "NotImplementedError")
#: A type of aten's schemas, and which Python values it takes.
_TAKES: Mapping[str, tuple[type[object], ...]] = {
    "int": (int,),
    "SymInt": (int,),
    "float": (float, int),
    "number": (float, int),
    "Scalar": (float, int),
    "bool": (bool, int),
    "str": (str,),
    "ScalarType": (int,),
}
_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(TensorValue),
    ctypes.c_int64,
    ctypes.POINTER(TensorValue),
)
#: What the runtime calls, once it was told: it must not be collected.
_served: list[object] = []


def serve(library: ctypes.CDLL) -> None:
    """Does for the runtime, which ``library`` is linked with, what it asks for from now on."""

    def do(name: bytes, given: Any, count: int, result: Any) -> int:
        try:
            _do(library, name.decode(), [given[i] for i in range(count)], result[0])
        except Exception as error:  # noqa: BLE001 - becomes what C++ throws
            kind = type(error).__name__
            known = kind if kind in _KINDS else "RuntimeError"
            library.simt_torch_fail(known.encode(), str(error)[:400].encode())
            return 1
        return 0

    _served[:] = [_CALLBACK(do)]
    library.simt_torch_delegate(_served[0])


def _do(library: ctypes.CDLL, name: str, given: Sequence[TensorValue], result: TensorValue) -> None:
    import torch

    memory = TensorMemory(library, [])
    arguments = [memory.take_out(value, "") for value in given]
    is_device = any(_on_device(library, value) for value in given)
    with torch._C.DisableTorchFunction(), torch.no_grad():
        done = run(name, arguments)
    if name.endswith("_"):
        changed = _handle(library, done, is_device)
        try:
            if library.simt_torch_assign(given[0].tensor, changed):
                raise RuntimeError(library.simt_torch_error_text().decode())
        finally:
            library.simt_torch_release(changed)
        library.simt_torch_retain(given[0].tensor)
        result.kind, result.tensor = values.TENSOR, given[0].tensor
    else:
        _put(library, result, done, is_device)


def run(name: str, arguments: Sequence[object]) -> Any:
    """Calls the operation of this name in aten with the arguments, in the order of its schema,
    of which those that have defaults may be absent. Raises TypeError where it takes none such."""
    import torch

    packet = getattr(torch.ops.aten, name)
    for overload in packet.overloads():
        operation = getattr(packet, overload)
        bound = _bound(operation._schema, arguments)
        if bound is not None:
            return operation(*bound[0], **bound[1])
    kinds = ", ".join(type(argument).__name__ for argument in arguments)
    raise TypeError(
        f"{name}({kinds}) is not an operation of PyTorch, which has {packet.overloads()}"
    )


def _bound(schema: Any, given: Sequence[object]) -> tuple[list[object], dict[str, object]] | None:
    parameters = schema.arguments
    needed = sum(not parameter.has_default_value() for parameter in parameters)
    if not needed <= len(given) <= len(parameters) or any(p.is_out for p in parameters):
        return None
    positions, named = list[object](), dict[str, object]()
    for parameter, value in zip(parameters, given, strict=False):
        type_ = str(parameter.real_type)
        if not _takes(type_, value):
            return None
        value = _dtype(value) if "ScalarType" in type_ and value is not None else value
        if parameter.kwarg_only:
            named[parameter.name] = value
        else:
            positions.append(value)
    return positions, named


def _takes(type_: str, value: object) -> bool:
    import torch

    if type_.startswith("Optional["):
        return value is None or _takes(type_[9:-1], value)
    if type_.startswith("List["):
        inner = type_[5:-1]
        return isinstance(value, list) and all(_takes(inner, each) for each in value)
    if type_ == "Tensor":
        return isinstance(value, torch.Tensor)
    return isinstance(value, _TAKES.get(type_, ()))


def _dtype(number: Any) -> object:
    return next(dtype for dtype, known in dtype_numbers().items() if known == number)


def _on_device(library: ctypes.CDLL, value: TensorValue) -> bool:
    if value.kind == values.TENSOR:
        return bool(library.simt_torch_is_device(value.tensor))
    if value.kind == values.LIST:
        return any(_on_device(library, value.items[i]) for i in range(value.count))
    return False


def _put(library: ctypes.CDLL, to: TensorValue, value: object, is_device: bool) -> None:
    import torch

    if isinstance(value, torch.Tensor):
        to.kind, to.tensor = values.TENSOR, _handle(library, value, is_device)
    elif isinstance(value, (list, tuple)):
        to.kind, to.count = values.LIST, len(value)
        to.items = library.simt_torch_list(len(value))
        for i, each in enumerate(value):
            _put(library, to.items[i], each, is_device)
    elif isinstance(value, bool):
        to.kind, to.whole = values.BOOL, value
    elif isinstance(value, int):
        to.kind, to.whole = values.INT, value
    elif isinstance(value, float):
        to.kind, to.number = values.REAL, value
    else:
        to.kind = values.NONE


def _handle(library: ctypes.CDLL, tensor: torch.Tensor, is_device: bool) -> int:
    """A new tensor of the runtime's, with these elements."""
    dense = tensor.contiguous()
    size, place = dense.numel() * dense.element_size(), dense.data_ptr()
    memory = library.simt_torch_memory(size, place, is_device)
    if not memory:
        raise MemoryError(f"no memory for a tensor of {size} bytes")
    numbers = values.numbers
    view: int | None = library.simt_torch_view(
        memory,
        dtype_numbers()[dense.dtype],
        dense.dim(),
        numbers(dense.shape),
        numbers(dense.stride()),
        0,
    )
    library.simt_torch_release(memory)
    if not view:
        raise RuntimeError(library.simt_torch_error_text().decode())
    return view
