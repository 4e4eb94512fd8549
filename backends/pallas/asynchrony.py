"""Follows what GPU interpret mode does at once and a GPU does later: copies out of shared memory,
wgmma, and stores that TMA and wgmma see only after ``commit_smem``. It is said where a kernel does
not wait for them, waits for a barrier that nobody completes, and where two programs of the grid
meet in one element.

jax's own detector orders accesses by barriers; this one hears each callback of the interpreter
before it runs.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

#: Says a finding: its code, what is wrong, and the place in the source.
Say = Callable[[str, str, str], None]
Range = tuple[Any, ...]  # an index or a slice for each of the first axes
Given = Mapping[str, Any]  # the arguments of a callback
#: The interpreter's primitives that do nothing there.
_WAITS = ("commit_smem_p", "wait_smem_to_gmem_p", "wgmma_wait_p")


@dataclass(frozen=True)
class Piece:
    """A part of one buffer of shared memory, by the interpreter's key."""

    key: Any
    where: Range

    def meets(self, other: Piece) -> bool:
        spans = zip(map(_span, self.where), map(_span, other.where), strict=False)
        return self.key == other.key and all(a < d and c < b for (a, b), (c, d) in spans)


@dataclass
class Flight:
    """The work that one Pallas thread has begun: stores that are not committed, and groups of
    pieces that copies and products read, the oldest first."""

    stored: list[Piece] = field(default_factory=list)
    leaving: list[list[Piece]] = field(default_factory=list)
    multiplied: list[list[Piece]] = field(default_factory=list)


class Asynchrony:
    """Follows a kernel through the interpreter's callbacks."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.flights: dict[int, Flight] = {}
        self.owners: dict[Any, Any] = {}
        self.inside = threading.local()  # of a copy by TMA, whose parts are accesses, too
        self.callbacks: Any = None

    def install(self) -> None:
        """Raises ImportError or AttributeError where the installed jax is made otherwise."""
        from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, jaxpr_interpret
        from jax._src.pallas.mosaic_gpu.interpret import shared_memory as memory

        self.callbacks = gpu_callbacks
        heard: dict[str, Callable[[Given], None]] = {
            "_get": self._loads,
            "_swap": self._stores,
            "copy_smem_to_gmem": self._leaves,
            "wgmma": self._multiplies,
            "wgmma_accumulator_deref": self._reads_sums,
            "_deallocate_buffer": self._ends,
        }
        for name, hear in heard.items():
            setattr(gpu_callbacks, name, _after(hear, getattr(gpu_callbacks, name)))
        name = "_execute_device_local_memory_transfer"
        setattr(gpu_callbacks, name, self._as_copy(getattr(gpu_callbacks, name)))
        wait: Any = memory.Barrier.wait
        memory.Barrier.wait = _unless_for_ever(wait)  # type: ignore[method-assign]
        _tell_waits(jaxpr_interpret, self._waits)

    def clear(self) -> None:
        self.flights.clear()
        self.owners.clear()

    def _flight(self, given: Given) -> Flight:
        return self.flights.setdefault(int(given["thread_id"]), Flight())

    def _as_copy(self, transfer: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(transfer)
        def copy(*args: Any, **named: Any) -> Any:
            self.inside.copy = True
            try:
                return transfer(*args, **named)
            finally:
                self.inside.copy = False

        return copy

    def _piece(self, given: Given, prefix: str = "") -> Piece:
        """The part of a buffer that a callback names, without how it is tiled and swizzled."""
        import jax
        from jax._src.pallas.mosaic.interpret import utils

        key = self.callbacks.HostAllocationKey.from_array(given[f"{prefix}allocation_key_as_array"])
        indices = self.callbacks._remove_noop_transforms(given[f"{prefix}transforms"])
        return Piece(key, utils.to_range(jax.tree.map(int, indices)))

    def _is_shared(self, piece: Piece) -> bool:
        space = self.callbacks.GPU_MEMORY_SPACE_BY_IDX[piece.key.memory_space_id]
        return bool(space.name == "SMEM")

    # What is heard before it is done.

    def _loads(self, given: Given) -> None:
        piece = self._piece(given)
        if given["grid_point_coords"] is not None and not self._is_shared(piece):
            self._meets(piece, given, None)

    def _stores(self, given: Given) -> None:
        piece = self._piece(given)
        if not self._is_shared(piece):
            self._meets(piece, given, given["val"])
            return
        for kind, reader, wait in (
            ("leaving", "a copy to global memory", "wait_smem_to_gmem"),
            ("multiplied", "wgmma", "wgmma_wait"),
        ):
            if any(piece.meets(other) for other in self._of_all(kind)):
                what = f"overwrites shared memory that {reader} may still read; {wait} first"
                self.say("race", what, _place(given))
        if not getattr(self.inside, "copy", False):
            self._flight(given).stored.append(piece)

    def _of_all(self, kind: str) -> Iterator[Piece]:
        for flight in self.flights.values():
            for group in getattr(flight, kind):
                yield from group

    def _leaves(self, given: Given) -> None:
        source = self._piece(given, "src_")
        self._is_committed(source, "a copy to global memory", given)
        self._flight(given).leaving.append([source])
        content = self._buffer(source)[source.where]
        self._meets(self._piece(given, "dst_"), given, content)

    def _multiplies(self, given: Given) -> None:
        group = [self._piece(given, name) for name in ("a_", "b_")]
        for piece in group:
            self._is_committed(piece, "wgmma", given)
        self._flight(given).multiplied.append(group)

    def _is_committed(self, piece: Piece, reader: str, given: Given) -> None:
        stored = [other for flight in self.flights.values() for other in flight.stored]
        if any(piece.meets(other) for other in stored):
            what = f"{reader} reads what was stored to shared memory without commit_smem"
            self.say("not-committed", what, _place(given))

    def _reads_sums(self, given: Given) -> None:
        groups, left = self._flight(given).multiplied, given["wait_n"]
        if left is not None:
            _keep(groups, left)
        if groups:
            self.say("race", "reads the sums of wgmma before wgmma_wait(0)", _place(given))

    def _ends(self, given: Given) -> None:
        """The buffer's scope ends: its memory is somebody else's then."""
        key = self.callbacks.HostAllocationKey.from_array(given["allocation_key_as_array"])
        flight = self._flight(given)
        if any(piece.key == key for group in flight.leaving for piece in group):
            what = "ends before a copy to global memory is over; wait_smem_to_gmem(0) first"
            self.say("race", what, _place(given))
        for groups in (flight.leaving, flight.multiplied):
            groups[:] = [group for group in groups if all(piece.key != key for piece in group)]
        flight.stored = [piece for piece in flight.stored if piece.key != key]

    def _waits(self, name: str, thread: Any, left: Any) -> None:
        flight = self._flight({"thread_id": thread})
        if name == "commit_smem_p":
            flight.stored.clear()
        else:
            groups = flight.multiplied if name == "wgmma_wait_p" else flight.leaving
            _keep(groups, int(left))

    def _meets(self, piece: Piece, given: Given, stored: Any) -> None:
        """Programs run in any order: an element is one program's, unless all store the same."""
        import numpy as np

        buffer, mine = self._buffer(piece), 1
        for at in given["grid_point_coords"]:
            mine = mine * 65_599 + int(at) + 1
        owners = self.owners.setdefault(piece.key, np.zeros(buffer.shape, np.int64))
        try:
            old, held = buffer[piece.where], owners[piece.where]
        except IndexError:  # outside, of which the interpreter speaks
            return
        foreign = (held != 0) & (held != mine)
        if stored is not None:
            foreign &= _differ(old, stored)
            owners[piece.where] = mine
        if foreign.any():
            done = "reads" if stored is None else "stores to"
            what = f"{done} elements that another program wrote: programs run in any order"
            self.say("shared-between-programs", what, _place(given))

    def _buffer(self, piece: Piece) -> Any:
        return self.callbacks._get_shared_memory().mem[piece.key]


def _span(index: Any) -> tuple[int, int]:
    return (index.start, index.stop) if isinstance(index, slice) else (index, index + 1)


def _keep(groups: list[Any], count: int) -> None:
    """Only the youngest are still in flight."""
    del groups[: max(0, len(groups) - count)]


def _differ(old: Any, new: Any) -> Any:
    """Whether bits differ, by element; of ``new`` only what lies in the array is stored."""
    import numpy as np

    new = np.asarray(new)[tuple(slice(0, size) for size in old.shape)]
    bits = [np.ascontiguousarray(x)[..., None].view(np.uint8) for x in (old, new)]
    return (bits[0] != bits[1]).any(axis=-1)


def _place(given: Given) -> str:
    from jax._src import source_info_util

    info = given.get("source_info")
    frame = source_info_util.user_frame(info.traceback) if info else None
    return f"{Path(frame.file_name).name}:{frame.start_line}" if frame else ""


def _after(hear: Callable[[Given], None], callback: Callable[..., Any]) -> Callable[..., Any]:
    """``callback``, heard of before it runs, with its arguments by name."""
    signature = inspect.signature(callback)

    @wraps(callback)
    def heard(*args: Any, **named: Any) -> Any:
        hear(signature.bind(*args, **named).arguments)
        return callback(*args, **named)

    return heard


def _unless_for_ever(wait: Callable[..., None]) -> Callable[..., None]:
    """Raises ValueError for a thread that is alone and waits for what nobody does meanwhile: copies
    are made at once."""

    @wraps(wait)
    def checked(
        barrier: Any, device_id: int, local_thread_id: int, *more: Any, **named: Any
    ) -> None:
        if barrier.num_participating_threads == 1:
            awaited = barrier.next_awaited_phase_by_thread[0]
            if awaited > barrier.phase:
                raise ValueError(
                    f"waits for ever: {barrier.arrivals_count} of {barrier.num_arrivals} arrivals"
                    f" have come to the barrier since it was last complete"
                )
        wait(barrier, device_id, local_thread_id, *more, **named)

    return checked


def _tell_waits(interpreter: Any, waits: Callable[[str, Any, Any], None]) -> None:
    """Make ``interpreter`` tell of the primitives that it passes over: a program is interpreted in
    parts, from one of them to the next."""
    from jax._src import callback, core

    known = {getattr(interpreter.gpu_primitives, name): name for name in _WAITS}
    interpret = interpreter.JaxprInterpreter.interpret
    token_of = interpreter.gpu_callbacks.TOKEN_SHAPE_DTYPE

    def told(name: str) -> Callable[..., Any]:
        def tell(token: Any, thread: Any, left: Any) -> Any:
            waits(name, thread, left)
            return token

        return tell

    def in_parts(self: Any, jaxpr: Any, token: Any, *args: Any) -> Any:
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], args, strict=True))
        for eqns in _parts(jaxpr.eqns, known):
            name = known.get(eqns[0].primitive)
            if name is None:
                made = [v for eqn in eqns for v in eqn.outvars if not isinstance(v, core.DropVar)]
                part = _part(jaxpr, [*values], made, eqns)
                token, results = interpret(self, part, token, *values.values())
                values |= zip(made, results, strict=True)
                continue
            left = [_value(atom, values, core) for atom in eqns[0].invars] or [0]
            token = callback.io_callback(
                told(name), token_of, token, self.thread_id, left[0], ordered=True
            )
        return token, [_value(atom, values, core) for atom in jaxpr.outvars]

    interpreter.JaxprInterpreter.interpret = in_parts


def _parts(eqns: Sequence[Any], apart: Mapping[Any, str]) -> Iterator[list[Any]]:
    """Equations in turn: those of the primitives that are apart alone, others together."""
    together: list[Any] = []
    for eqn in eqns:
        if eqn.primitive not in apart:
            together.append(eqn)
            continue
        if together:
            yield together
        yield [eqn]
        together = []
    if together:
        yield together


def _part(jaxpr: Any, taken: Sequence[Any], made: Sequence[Any], eqns: Sequence[Any]) -> Any:
    """All of it that the interpreter asks for."""
    return SimpleNamespace(
        constvars=[], invars=[*taken], outvars=[*made], eqns=eqns, debug_info=jaxpr.debug_info
    )


def _value(atom: Any, values: Mapping[Any, Any], core: Any) -> Any:
    return atom.val if isinstance(atom, core.Literal) else values[atom]
