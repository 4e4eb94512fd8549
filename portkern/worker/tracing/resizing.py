"""The inputs that only the file can make, at other sizes than its own: its function is run again
while the lengths that it asks torch for are replaced by others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch  # noqa: TID253 - imported where a file is run, in a worker
from torch.overrides import TorchFunctionMode  # noqa: TID253

from portkern.spec.from_torch.source import replaceable
from portkern.spec.imported import ImportedInputs

Size = tuple[int, ...]

#: What takes a size, as numbers or as one sequence of them.
_SIZED = frozenset("rand randn zeros ones empty expand reshape view repeat".split())
#: What takes a size as its first argument, and other numbers after it.
_SIZE_FIRST = frozenset(("full", "new_zeros", "new_ones", "new_empty", "new_full"))
#: What takes lengths as numbers.
_COUNTED = frozenset("arange randperm linspace eye randint tril_indices triu_indices".split())
#: Types of one byte, whose bounds say nothing of lengths.
_BYTES = (torch.uint8, torch.int8)


class Resized(TorchFunctionMode):
    """``shapes``: sizes of inputs in the file, and what each becomes; ``numbers``: of single
    lengths, for what is not an input's size."""

    def __init__(self, shapes: Mapping[Size, Size], numbers: Mapping[int, int]) -> None:
        super().__init__()
        self._shapes, self._numbers = shapes, numbers

    @classmethod
    def to(cls, asked: ImportedInputs, dims: Mapping[str, int]) -> Resized:
        """The changes for inputs whose axes have the lengths ``dims``. A length of the file
        that two axes have is replaced only as part of an input's whole size; numbers at the top of
        the file are replaced in its text (:func:`portkern.spec.from_torch.source.with_sizes`)."""
        in_text = replaceable(asked.source)
        before = {axis: dims[axis] if axis in in_text else n for axis, n in asked.lengths.items()}
        shapes: dict[Size, set[Size]] = {}
        for shape in asked.shapes:
            shapes.setdefault(_size(shape, before), set()).add(_size(shape, dims))
        numbers: dict[int, set[int]] = {}
        for axis, length in before.items():
            numbers.setdefault(length, set()).add(dims[axis])
        return cls(
            {old: next(iter(new)) for old, new in shapes.items() if len(new) == 1},
            {old: next(iter(new)) for old, new in numbers.items() if len(new) == 1},
        )

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if "size" in given:
            given["size"] = self._changed(given["size"])
        if name in _SIZED:
            args = self._sized(args)
        elif name in _SIZE_FIRST:
            first = next((n for n, one in enumerate(args) if _is_size(one)), None)
            args = tuple(self._changed(one) if n == first else one for n, one in enumerate(args))
        elif name in _COUNTED:
            changed = self._whole if given.get("dtype") in _BYTES else self._changed
            args = tuple(map(changed, args))
            given = {key: changed(one) for key, one in given.items()}
        return function(*args, **given)

    def _sized(self, args: tuple[object, ...]) -> tuple[object, ...]:
        lengths = [one for one in args if type(one) is int]
        if not lengths:
            return tuple(map(self._changed, args))
        ahead = args[: len(args) - len(lengths)]
        return (*ahead, *self._size(lengths))

    def _whole(self, value: object) -> object:
        return self._size(value) if _is_size(value) else value

    def _changed(self, value: object) -> object:
        return self._numbers.get(value, value) if type(value) is int else self._whole(value)

    def _size(self, lengths: Any) -> Size:
        whole = self._shapes.get(tuple(lengths))
        return whole or tuple(self._numbers.get(length, length) for length in lengths)


def _is_size(value: object) -> bool:
    return isinstance(value, list | tuple) and all(type(one) is int for one in value)


def _size(shape: Sequence[int | str], dims: Mapping[str, int]) -> Size:
    return tuple(dims[length] if isinstance(length, str) else length for length in shape)
