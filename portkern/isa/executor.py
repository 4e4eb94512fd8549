"""Runs kernels of a code object: memory stays where the caller has it, and bounds are the caller's.

An access outside the buffers that a launch is given is a finding, and does not take place.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from portkern.errors import BuildError, LaunchError
from portkern.isa import code_object, counts, runtime_library, source_lines
from portkern.isa.code_object import ObjectKernel
from portkern.isa.finding import REMARKS, FindingKind, ObjectFinding, ObjectRan
from portkern.toolchain.run_tool import refuses_foreign

#: Which table describes a processor's instructions.
TABLES = {
    "gfx90a": "cdna",
    "gfx942": "cdna",
    "gfx950": "cdna",
    "gfx1100": "rdna3",
    "gfx1201": "rdna4",
}
#: Instructions of a processor that its family's table does not have, or has as others.
_OWN = {"gfx90a": ("gfx90a",)}
#: A launch ends after so many instructions of its waves, whatever it does.
LIMIT = 1 << 31
#: What may look on, and the runtime's bits for it.
CHECKS = {"waits": 1, "lds": 2, "counters": 4}
MOST_LDS_BYTES = 160 << 10
_MOST_THREADS = 1024
_MOST_SCRATCH_BYTES = 1 << 18
#: A kernel with calls through pointers does not know what stack they take.
_DYNAMIC_STACK_BYTES = 16 << 10
_MOST_FINDINGS = 256
_PACKET_BYTES = 64

Dim3 = tuple[int, int, int]
Record = TypeVar("Record", bound=ctypes.Structure)


@dataclass(frozen=True)
class LaunchBuffer:
    """Memory that a kernel may use."""

    address: int
    size: int
    writable: bool = True


@dataclass(frozen=True)
class Instruction:
    """One decoded instruction; ``modelled`` says whether it can be run."""

    address: int
    words: int
    mnemonic: str
    modelled: bool
    encoding: int


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        *(
            (name, ctypes.c_uint32)
            for name in (
                "lds",
                "scratch",
                "rsrc1",
                "rsrc2",
                "properties",
                "preload_words",
                "preload_offset",
                "wave_size",
                "vectors",
                "accumulators",
                "entry",
                "ids_in_ttmp",
                "fnuz",
                "checks",
            )
        ),
        *(
            (name, ctypes.c_uint64)
            for name in ("kernarg", "dispatch", "base", "limit", "quiet", "resident")
        ),
    )


class _Range(ctypes.Structure):
    _fields_ = (
        ("low", ctypes.c_uint64),
        ("high", ctypes.c_uint64),
        ("writable", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
    )


class _Found(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("pc", ctypes.c_uint32),
        ("wave", ctypes.c_uint32),
        ("lane", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("group", ctypes.c_uint32 * 3),
        ("name", ctypes.c_uint32),
    )


class _Described(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint32) for name in ("pc", "words", "name", "flags", "modelled", "encoding")
    )


@cache
def _table(processor: str) -> int:
    names = (TABLES[processor], *_OWN.get(processor, ()))
    text = b"".join((runtime_library.TABLES / f"{name}.tsv").read_bytes() for name in names)
    address: int = runtime_library.load().isa_table(text, ctypes.c_uint64(len(text)))
    return address


class ObjectProgram:
    """A code object, loaded and decoded. Raises BuildError for what is not one, and in a process
    that takes no text of a stranger's: its bytes go through native code here."""

    def __init__(self, path: Path) -> None:
        if refuses_foreign():
            raise BuildError(f"{path.name} would be executed outside of the jail; please report it")
        self.path = path
        self.object = code_object.read(path)
        self._library = runtime_library.load()
        self._table = ctypes.c_void_p(_table(self.object.processor))
        self._image = ctypes.create_string_buffer(self.object.image, len(self.object.image))
        self.base = ctypes.addressof(self._image)
        for at, addend in self.object.relocations:
            value = (self.base + addend) % (1 << 64)
            struct.pack_into("<Q", self._image, at, value)
        self._decoded: dict[int, ctypes.c_void_p] = {}
        self._missing: dict[str, tuple[ObjectFinding, ...]] = {}
        self._named: dict[int, list[tuple[int, str, str]]] = {}

    def __del__(self) -> None:
        for decoded in getattr(self, "_decoded", {}).values():
            self._library.isa_free(decoded)

    def _decode(self, wave_size: int) -> ctypes.c_void_p:
        if wave_size not in self._decoded:
            start, size = self.object.text
            old = int(self.object.processor == "gfx90a")
            self._decoded[wave_size] = ctypes.c_void_p(
                self._library.isa_decode(
                    self._table, self._image, start, size - size % 4, wave_size, old
                )
            )
        return self._decoded[wave_size]

    def altered(self, words: Mapping[int, int]) -> ObjectProgram:
        """The same object, with other words of code at these addresses."""
        other = ObjectProgram(self.path)
        for address, word in words.items():
            struct.pack_into("<I", other._image, address, word)
        return other

    def name(self, number: int) -> str:
        found: bytes = self._library.isa_name(self._table, number)
        return found.decode()

    def instructions(self, wave_size: int) -> list[Instruction]:
        """The instructions of all code, in order; the last one stands for running off its end."""
        decoded = self._decode(wave_size)
        rows = (_Described * self._library.isa_count(decoded))()
        self._library.isa_describe(decoded, rows)
        return [
            Instruction(row.pc, row.words, self.name(row.name), bool(row.modelled), row.encoding)
            for row in rows
        ]

    def records(self, wave_size: int, layout: type[Record]) -> Iterator[tuple[Record, str]]:
        """The decoded instructions, each in the runtime's own ``layout``, and the name of its
        encoding (empty for none)."""
        decoded = self._decode(wave_size)
        count = self._library.isa_count(decoded) - 1
        expected = self._library.isa_instruction_bytes()
        if ctypes.sizeof(layout) != expected:
            raise ValueError(f"{layout} has {ctypes.sizeof(layout)} bytes, expected {expected}")
        rows = (layout * count).from_address(self._library.isa_code(decoded))
        for row, one in zip(rows, self.instructions(wave_size), strict=False):
            name = self._library.isa_encoding(self._table, one.encoding)
            yield row, name.decode()

    def run(
        self,
        kernel: str,
        arguments: Sequence[bytes],
        grid: Dim3,
        block: Dim3,
        *,
        buffers: Sequence[LaunchBuffer] = (),
        dynamic_lds_bytes: int = 0,
        limit: int = LIMIT,
        quiet: int = 0,
        resident: int = 0,
        checks: Collection[str] = (),
    ) -> ObjectRan:
        """Launch ``kernel`` with the bytes of each of its explicit arguments, with these of
        :data:`CHECKS` looking on. After ``quiet`` instructions, unless that is 0, a workgroup must
        have ended; of ``resident`` ones, as many as the device has room for, no further one is
        begun before one has. Raises LaunchError for what a GPU would not accept."""
        entry = self.object.kernel(kernel)
        _check(entry, arguments, grid, block, dynamic_lds_bytes)
        segment = _Segment(entry, arguments, grid, block, dynamic_lds_bytes)
        packet = self._packet(entry, grid, block, dynamic_lds_bytes, segment.address)
        launch = self._launch(entry, grid, block, dynamic_lds_bytes, limit)
        looking = set(checks) & CHECKS.keys()
        launch.checks = sum(CHECKS[name] for name in looking)
        launch.kernarg, launch.dispatch = segment.address, ctypes.addressof(packet)
        launch.quiet, launch.resident = quiet, resident
        known = [
            *buffers,
            LaunchBuffer(segment.address, segment.size, writable=False),
            LaunchBuffer(ctypes.addressof(packet), _PACKET_BYTES, writable=False),
            LaunchBuffer(self.base, len(self.object.image)),
        ]
        ranges = (_Range * len(known))(
            *(_Range(b.address, b.address + b.size, b.writable, k) for k, b in enumerate(known))
        )
        found, count = (_Found * _MOST_FINDINGS)(), ctypes.c_uint32()
        executed = ctypes.c_uint64()
        decoded = self._decode(entry.wave_size)
        count_all = self._library.isa_count(decoded) if "counters" in looking else 0
        totals = (ctypes.c_uint64 * len(counts.TOTALS))()
        hits, lanes = ((ctypes.c_uint64 * count_all)() for _ in range(2))
        stopped = self._library.isa_run(
            decoded,
            ctypes.byref(launch),
            ranges,
            len(known),
            found,
            ctypes.byref(count),
            ctypes.byref(executed),
            totals,
            hits,
            lanes,
        )
        every = [self._finding(one) for one in found[: count.value]]
        remarks = tuple(one for one in every if one.kind in REMARKS)
        findings = tuple(one for one in every if one.kind not in REMARKS)
        seen = {finding.address for finding in findings}
        paths = self.missing_waits(kernel) if "waits" in looking else ()
        unseen = tuple(finding for finding in paths if finding.address not in seen)
        counted = self._counts(entry.wave_size, totals[:], hits[:], lanes[:]) if count_all else {}
        return ObjectRan(not stopped, findings, executed.value, counted, unseen, remarks)

    def missing_waits(self, kernel: str) -> tuple[ObjectFinding, ...]:
        """Findings about what the kernel's code touches on some path with no wait before it,
        whether a launch comes by there or not."""
        if kernel not in self._missing:
            entry, found = self.object.kernel(kernel), (_Found * _MOST_FINDINGS)()
            decoded = self._decode(entry.wave_size)
            count = self._library.isa_missing_waits(decoded, self._table, _start(entry), found)
            findings = (self._finding(one) for one in found[:count])
            self._missing[kernel] = tuple(replace(one, executed=False) for one in findings)
        return self._missing[kernel]

    def _counts(
        self, wave_size: int, totals: Sequence[int], hits: Sequence[int], lanes: Sequence[int]
    ) -> dict[str, int]:
        executed = [
            (mnemonic, encoding, hits[at], lanes[at])
            for at, mnemonic, encoding in self._words(wave_size)
            if hits[at]
        ]
        return counts.of(executed, totals, wave_size)

    def _words(self, wave_size: int) -> list[tuple[int, str, str]]:
        """The number, mnemonic and encoding of each instruction; two in one word are one, by the
        name of the first."""
        if wave_size not in self._named:
            before, named = -1, []
            for at, one in enumerate(self.instructions(wave_size)):
                if one.address != before:
                    encoding: bytes = self._library.isa_encoding(self._table, one.encoding)
                    named.append((at, one.mnemonic, encoding.decode()))
                before = one.address
            self._named[wave_size] = named
        return self._named[wave_size]

    @property
    def _cdna(self) -> bool:
        return TABLES[self.object.processor] == "cdna"

    def _finding(self, found: _Found) -> ObjectFinding:
        return ObjectFinding(
            kind=tuple(FindingKind)[found.kind - 1],
            address=found.pc,
            mnemonic=self.name(found.name),
            wave=found.wave,
            lane=found.lane,
            group=tuple(found.group),
            accessed=found.address,
            line=source_lines.at(self.path, found.pc),
        )

    def _launch(
        self, entry: ObjectKernel, grid: Dim3, block: Dim3, dynamic_lds_bytes: int, limit: int
    ) -> _Launch:
        launch = _Launch()
        launch.grid[:], launch.block[:] = grid, block
        launch.lds = entry.lds_bytes + dynamic_lds_bytes
        launch.scratch = max(
            entry.scratch_bytes, _DYNAMIC_STACK_BYTES if entry.dynamic_stack else 0
        )
        launch.rsrc1, launch.rsrc2, launch.properties = entry.rsrc1, entry.rsrc2, entry.properties
        launch.preload_words, launch.preload_offset = entry.preload_words, entry.preload_offset
        launch.wave_size, launch.base, launch.limit = entry.wave_size, self.base, limit
        launch.entry = _start(entry)
        cdna = self._cdna
        plain = ((entry.rsrc3 & 63) + 1) * 4 if cdna else 256
        granules = ((entry.rsrc1 & 63) + 1) * 8
        launch.vectors = min(plain, granules if cdna else 256, 256)
        launch.accumulators = max(0, min(granules - plain, 256)) if cdna else 0
        launch.ids_in_ttmp = self.object.processor == "gfx1201"
        launch.fnuz = self.object.processor == "gfx942"
        return launch

    def _packet(
        self, entry: ObjectKernel, grid: Dim3, block: Dim3, dynamic_lds_bytes: int, kernarg: int
    ) -> ctypes.Array[ctypes.c_char]:
        """The dispatch packet, which code of the older ABI reads sizes from."""
        threads = [g * b for g, b in zip(grid, block, strict=True)]
        data = struct.pack(
            "<HHHHHHIIIIIQQQQ",
            *(0, 3, *block, 0, *(n % (1 << 32) for n in threads)),
            *(entry.scratch_bytes, entry.lds_bytes + dynamic_lds_bytes),
            *(self.base + entry.descriptor, kernarg, 0, 0),
        )
        return ctypes.create_string_buffer(data, _PACKET_BYTES)


def _start(entry: ObjectKernel) -> int:
    """The address of the first instruction. What stands before it loads what is preloaded, for
    hardware that does not do so itself."""
    return entry.entry + (256 if entry.preload_words else 0)


def _check(
    entry: ObjectKernel, arguments: Sequence[bytes], grid: Dim3, block: Dim3, dynamic_lds_bytes: int
) -> None:
    threads = block[0] * block[1] * block[2]
    if min(block) < 1 or threads > min(_MOST_THREADS, entry.most_threads):
        raise LaunchError(
            f"{entry.name} cannot be launched with blocks of {block}; the most is "
            f"{entry.most_threads} threads"
        )
    if min(grid) < 1 or max(grid) >= 1 << 32:
        raise LaunchError(f"{entry.name} cannot be launched with a grid of {grid}")
    lds = entry.lds_bytes + dynamic_lds_bytes
    if dynamic_lds_bytes < 0 or lds > MOST_LDS_BYTES:
        raise LaunchError(f"{entry.name} asks for {lds} bytes of LDS, of {MOST_LDS_BYTES}")
    if entry.scratch_bytes > _MOST_SCRATCH_BYTES:
        raise LaunchError(f"{entry.name} asks for {entry.scratch_bytes} bytes of scratch a lane")
    if len(arguments) != len(entry.explicit):
        raise LaunchError(
            f"{entry.name} takes {len(entry.explicit)} arguments, got {len(arguments)}"
        )
    for argument, value in zip(entry.explicit, arguments, strict=True):
        if len(value) != argument.size:
            raise LaunchError(
                f"{entry.name} takes {argument.size} bytes at {argument.offset}, got {len(value)}"
            )


class _Segment:
    """The kernel argument segment: explicit arguments and what the compiler asks for besides."""

    def __init__(
        self,
        entry: ObjectKernel,
        arguments: Sequence[bytes],
        grid: Dim3,
        block: Dim3,
        dynamic_lds_bytes: int,
    ) -> None:
        self.size = entry.kernarg_bytes
        if any(a.offset + a.size > self.size or a.size < 0 for a in entry.arguments):
            raise BuildError(f"{entry.name} has arguments outside of its {self.size} bytes")
        data = bytearray(self.size)
        for argument, value in zip(entry.explicit, arguments, strict=True):
            data[argument.offset : argument.offset + argument.size] = value
        hidden = _hidden(grid, block, dynamic_lds_bytes)
        for argument in entry.arguments:
            if number := hidden.get(argument.kind, 0) if argument.hidden else 0:
                stored = number.to_bytes(argument.size, "little")
                data[argument.offset : argument.offset + argument.size] = stored
        # Loads are of up to 64 bytes, and their unused end may lie beyond the segment.
        self.size += 64
        self._memory = ctypes.create_string_buffer(bytes(data), self.size + 64)
        at = ctypes.addressof(self._memory)
        self.address = at + -at % 64
        ctypes.memmove(self.address, bytes(data), len(data))


def _hidden(grid: Dim3, block: Dim3, dynamic_lds_bytes: int) -> Mapping[str, int]:
    sizes = [g * b for g, b in zip(grid, block, strict=True)]
    values = {
        "hidden_grid_dims": 3 if sizes[2] > 1 else 2 if sizes[1] > 1 else 1,
        "hidden_dynamic_lds_size": dynamic_lds_bytes,
        "hidden_shared_base": 0x00010000,
        "hidden_private_base": 0x00020000,
    }
    for axis, blocks, threads in zip("xyz", grid, block, strict=True):
        values[f"hidden_block_count_{axis}"] = blocks
        values[f"hidden_group_size_{axis}"] = threads
    return values
