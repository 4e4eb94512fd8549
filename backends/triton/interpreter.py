"""Makes Triton's interpreter calculate as the hardware does.

It keeps bfloat16 as the bits in a uint16 and calculates with those as if they were integers, and
it truncates where the hardware rounds to nearest even ("does not support operations on bfloat16",
says Triton's debugging guide; so in 3.6 and 3.9). A kernel that is right would be `wrong`.
And 3.6 cannot take a tensor as a loop's bound, since NumPy 2.4 makes no int of a one-element row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from triton import language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

T = TypeVar("T")
Reduction = Callable[..., Sequence["tl.tensor"]]

#: The builder's methods that calculate; loads, stores, selects and shapes move bits as they are.
_ARITHMETIC = ("binary_op", "unary_op", "create_fma", "create_erf", "create_rsqrt", "create_dot")


def repair() -> None:
    """Widen bfloat16 operands to float32, calculate, and round what was bfloat16 once; let any
    tensor of one element be an index."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    if getattr(builder, "portkern_repaired", False):
        return
    builder.cast_impl = _cast(builder.cast_impl)
    for name in _ARITHMETIC:
        setattr(builder, name, _widened(getattr(builder, name)))
    for reduction in (interpreter.ReduceOps, interpreter.ScanOps):
        reduction.apply_impl = _reduced(reduction.apply_impl)
    if not hasattr(builder, "get_bf16"):  # 3.6 has no constants of this type
        builder.get_bf16 = _bfloat16_constant
    interpreter._patch_lang_tensor = _indexed(interpreter._patch_lang_tensor)
    builder.portkern_repaired = True


def _bfloat16_constant(builder: InterpreterBuilder, value: float) -> TensorHandle:
    import numpy as np
    from triton import language as tl
    from triton.runtime.interpreter import TensorHandle

    return _round(TensorHandle(np.array([value], np.float32), tl.float32))


def _indexed(original: Callable[..., None]) -> Callable[..., None]:
    def patch(tensor: type[tl.tensor], *scope: object) -> None:
        original(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    return patch


def _widen(handle: T) -> T | TensorHandle:
    import numpy as np
    from triton import language as tl
    from triton.runtime.interpreter import TensorHandle

    if not isinstance(handle, TensorHandle) or handle.dtype.scalar != tl.bfloat16:
        return handle
    bits = np.asarray(handle.data, np.uint16).astype(np.uint32) << np.uint32(16)
    return TensorHandle(bits.view(np.float32), tl.float32)


def _round(handle: TensorHandle) -> TensorHandle:
    """A handle of bfloat16 bits from one of numbers, to nearest even."""
    import numpy as np
    from triton import language as tl
    from triton.runtime.interpreter import TensorHandle

    wide = np.ascontiguousarray(handle.data, np.float32)
    bits = wide.view(np.uint32)
    tie = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + tie) >> np.uint32(16)
    # Adding could carry a NaN's mantissa into infinity.
    narrow = np.where(np.isnan(wide), np.uint32(0x7FC0), rounded).astype(np.uint16)
    return TensorHandle(narrow.reshape(np.shape(handle.data)), tl.bfloat16)


def _cast(original: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    def cast_impl(self: InterpreterBuilder, src: TensorHandle, dst_type: tl.dtype) -> TensorHandle:
        from triton import language as tl

        if src.dtype.scalar == dst_type.scalar:
            return original(self, src, dst_type)
        wide = _widen(src)
        return _round(wide) if dst_type.scalar == tl.bfloat16 else original(self, wide, dst_type)

    return cast_impl


def _widened(original: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    def calculate(self: InterpreterBuilder, *args: object) -> TensorHandle:
        wide = [_widen(arg) for arg in args]
        result = original(self, *wide)
        narrow = any(new is not old for new, old in zip(wide, args, strict=True))
        # A comparison's result is numpy's bool; a dot's is its accumulator's float32.
        if not narrow or result.data.dtype.kind != "f" or original.__name__ == "create_dot":
            return result
        return _round(result)

    return calculate


def _reduced(original: Reduction) -> Reduction:
    def apply_impl(self: Any, input: Sequence[tl.tensor]) -> Sequence[tl.tensor]:
        from triton import language as tl

        narrow = [tensor.dtype.scalar == tl.bfloat16 for tensor in input]
        if not any(narrow):
            return original(self, input)
        wide = tuple(
            self.to_tensor(_widen(tensor.handle).data, tl.float32) if is_narrow else tensor
            for tensor, is_narrow in zip(input, narrow, strict=True)
        )
        results = []
        for result in original(self, wide):
            if result.dtype.scalar == tl.float32:
                result = self.to_tensor(_round(result.handle).data, tl.bfloat16)
            results.append(result)
        return results

    return apply_impl
