"""The region of memory that one access of a Pallas kernel names: which elements, and which of
them exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = Any  # an array while it is traced, or the RegionOperand of a reference


@dataclass(eq=False)
class RegionOperand:
    """An array that a kernel sees a block of. ``start`` is where the program's block begins."""

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: Any
    squeezed: tuple[bool, ...]
    memory: int  # of the state: an output that is an input, too, has one memory with it
    written: bool
    start: tuple[Value, ...] = ()


class BlockRegion:
    """The elements that one access names, in the shape of its value: ``inside`` are those which its
    array has, ``allowed`` those which its mask lets through."""

    def __init__(
        self, operand: RegionOperand, block: Sequence[int], transforms: Sequence[Any], mask: Value
    ) -> None:
        import jax.numpy as jnp
        from jax._src.indexing import Slice
        from jax._src.state.indexing import NDIndexer

        *more, indexer = transforms or [None]
        view = tuple(n for n, gone in zip(block, operand.squeezed, strict=True) if not gone)
        indexer = indexer or NDIndexer.make_trivial_indexer(view)
        if more or not isinstance(indexer, NDIndexer):
            raise NotImplementedError("a view of a view, which the Triton lowering lacks")
        self.shape = tuple(indexer.get_indexer_shape())
        own = iter(indexer.indices)
        self.indices = [jnp.int32(0) if gone else next(own) for gone in operand.squeezed]
        self.start = operand.start
        self.low = [0] * len(operand.shape)  # how wide the margins are
        self.plain = all(
            index.stride == 1 if isinstance(index, Slice) else jnp.ndim(index) == 0
            for index in self.indices
        )
        self.sizes = [k.size if isinstance(k, Slice) else 1 for k in self.indices]
        self.operand = operand
        self.allowed = jnp.broadcast_to(jnp.asarray(True if mask is None else mask), self.shape)
        self.places = [self._places(axis, indexer) for axis in range(len(self.indices))]
        self.inside = jnp.ones(self.shape, bool)
        for place, length in zip(self.places, operand.shape, strict=True):
            self.inside &= (place >= 0) & (place < length)

    def _places(self, axis: int, indexer: Any) -> Value:
        """Where in the array each element of the value lies on an axis, to be broadcast."""
        import jax.numpy as jnp
        from jax._src.indexing import Slice

        index, begin = self.indices[axis], self.start[axis]
        arrays = [k for k, one in enumerate(indexer.indices) if not isinstance(one, Slice)]
        rank = len(indexer.int_indexer_shape)
        together = bool(arrays) and arrays[-1] - arrays[0] == len(arrays) - 1
        at = arrays[0] if together else 0  # where the arrays' axes stand among the slices'
        if not isinstance(index, Slice):
            place = jnp.asarray(index, jnp.int32) + begin
            trailing = len(self.shape) - at - jnp.ndim(place) if jnp.ndim(place) else 0
            return place.reshape(place.shape + (1,) * trailing)
        number = sum(isinstance(one, Slice) for one in self.indices[:axis])
        number += rank if number >= at else 0
        place = jnp.arange(index.size, dtype=jnp.int32) * index.stride + index.start + begin
        return place.reshape((-1,) + (1,) * (len(self.shape) - number - 1))

    def _corner(self) -> list[Value]:
        """The corner of a plain region within its margins; where it lies farther out, all of it
        is poison."""
        import jax.numpy as jnp
        from jax._src.indexing import Slice

        starts = [k.start if isinstance(k, Slice) else k for k in self.indices]
        return [
            jnp.clip(begin + first, -low, length) + low
            for begin, first, low, length in zip(
                self.start, starts, self.low, self.operand.shape, strict=True
            )
        ]

    def _full(self) -> list[Value]:
        """Places of a region that is not plain; one outside goes to the corner of the margin."""
        import jax.numpy as jnp

        return [
            jnp.where(self.inside, jnp.broadcast_to(place, self.shape) + low, 0)
            for place, low in zip(self.places, self.low, strict=True)
        ]

    def read(self, memory: Value) -> Value:
        import jax

        if not self.plain:
            return memory[tuple(self._full())]
        return jax.lax.dynamic_slice(memory, self._corner(), self.sizes).reshape(self.shape)

    def write(self, memory: Value, value: Value, where: Value, after: Value) -> Value:
        """The memory with the value in it. ``after`` is a count, on which the places depend: XLA
        would else write first, into a copy of all the memory for each program."""
        import jax
        import jax.numpy as jnp

        nothing = jnp.minimum(after, 0)
        if not self.plain:
            places = self._full()
            places[0] = jnp.where(where, places[0], memory.shape[0]) + nothing
            return memory.at[tuple(places)].set(value, mode="drop")
        kept = jnp.where(where, value, self.read(memory)).reshape(self.sizes)
        corner = [place + nothing for place in self._corner()]
        return jax.lax.dynamic_update_slice(memory, kept, corner)
