"""Leaves out waits and barriers of compiled objects, one at a time, and counts what the executor's
checks say of it; what they say of the objects as the compilers made them is a false alarm.

    .venv/bin/python -m benchmarks.object_waits run=FILE [ops=core] [dtypes=all] [targets=all]
        [backends=hip,triton] [seconds=3600] [most=24]
    .venv/bin/python -m benchmarks.object_waits rows=FILE[,FILE…]

``run`` compiles each kernel, launches the last size of ``ci``, and adds a line to FILE for each
object; those that have one are left out. Of a kernel's waits at most ``most`` are left out, evenly
drawn. ``rows`` writes results/object-waits.json; ``make readme`` makes the table of it.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import os
import random
import struct
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks import _script
from benchmarks.object_records import BACKENDS, DTYPES, TARGETS
from portkern import ops
from portkern.evaluator import inputs
from portkern.isa.executor import TABLES, LaunchBuffer, ObjectProgram
from portkern.isa.finding import FindingKind, ObjectRan
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Artifact, Build, Call, Kernel, Venue
from portkern.spec.op import Op, Workload

CHECKS = ("waits", "lds")
NOTHING = 0xBF800000
TRAPS = {"cdna": 0xBF920000, "rdna3": 0xBF900000, "rdna4": 0xBF900000}
#: The fields of each family's waits that count loads, as (lowest bit, bits), lowest first. CDNA's
#: count of vector memory has two fields.
WAITS: Mapping[str, Mapping[str, tuple[tuple[tuple[int, int], ...], ...]]] = {
    "cdna": {"s_waitcnt": (((0, 4), (14, 2)), ((8, 4),))},
    "rdna3": {
        "s_waitcnt": (((10, 6),), ((4, 6),)),
        "s_waitcnt_vmcnt": (((0, 6),),),
        "s_waitcnt_lgkmcnt": (((0, 6),),),
    },
    "rdna4": {
        "s_wait_loadcnt": (((0, 6),),),
        "s_wait_dscnt": (((0, 6),),),
        "s_wait_kmcnt": (((0, 6),),),
        "s_wait_loadcnt_dscnt": (((8, 6),), ((0, 6),)),
        "s_wait_storecnt_dscnt": (((0, 6),),),
    },
}
#: What waits for stores alone, which no register shows.
FOR_STORES = {"s_waitcnt_vscnt", "s_wait_storecnt"}
#: A barrier of two halves is left out as a whole.
BARRIERS = {"s_barrier": 1, "s_barrier_signal": 2}
#: More than a launch without a wait or barrier takes.
LIMIT = 1 << 25


@dataclass
class Counted:
    """Counts the changes, those that a wave came by, and those that were reported by running the
    object or by reading its code. ``silent`` names those that a wave came by with no finding."""

    changed: int = 0
    executed: int = 0
    running: int = 0
    code: int = 0
    either: int = 0
    differs: int = 0
    silent: list[str] = field(default_factory=list)


@dataclass
class Row:
    """One object. ``alarms`` are findings about it as the compiler made it, ``warnings`` what its
    code alone says."""

    backend: str
    op: str
    dtype: str
    target: str
    kernels: int = 0
    launched: int = 0
    for_stores: int = 0
    alarms: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    deleted: Counted = field(default_factory=Counted)
    weakened: Counted = field(default_factory=Counted)
    barriers: Counted = field(default_factory=Counted)
    failed: str = ""
    seconds: float = 0.0


def main() -> None:
    known = {"run", "ops", "dtypes", "targets", "backends", "seconds", "most", "rows"}
    words = _script.words(known, __doc__)
    if "run" in words:
        run(words)
    elif "rows" in words:
        rows = [row for name in words["rows"].split(",") for row in _script.rows(Path(name))]
        _script.write("object-waits.json", summary(rows))
        print(table(summary(rows)))
    else:
        raise SystemExit(__doc__)


def run(words: Mapping[str, str]) -> None:
    file, most = Path(words["run"]), int(words.get("most", 24))
    end = time.monotonic() + float(words.get("seconds", 3600))
    done = {(r["backend"], r["op"], r["dtype"], r["target"]) for r in _script.rows(file)}
    left = [one for one in asked(words) if one not in done]
    print(f"{len(left)} objects", flush=True)
    cores, fresh = len(os.sched_getaffinity(0)), get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=fresh) as pool:
        rows = [pool.submit(_row_until, end, *one, most) for one in left]
        for ended in as_completed(rows):
            row = ended.result()
            if row is None:
                continue
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row, default=vars) + "\n")
            print(
                f"{row.backend} {row.op} {row.dtype} {row.target}: {row.seconds:.0f} s "
                f"{row.failed or row.deleted.changed}",
                flush=True,
            )


def asked(words: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Backend, operator, type and target; each target in turn, so that what is cut off has some of
    all."""

    def of(name: str, every: Sequence[str]) -> Sequence[str]:
        return every if words.get(name, "all") == "all" else words[name].split(",")

    group = words.get("ops", "core")
    names = ops.SETS[group] if group in ops.SETS else group.split(",")
    every = itertools.product(of("dtypes", DTYPES), names, of("backends", BACKENDS))
    for dtype, op, backend in every:
        for arch in of("targets", TARGETS):
            yield backend, op, dtype, arch


def _row_until(end: float, *asked: Any) -> Row | None:
    return row_of(*asked) if time.monotonic() < end else None


def row_of(backend: str, op: str, dtype: str, arch: str, most: int) -> Row:
    began, row = time.monotonic(), Row(backend, op, dtype, arch)
    try:
        with tempfile.TemporaryDirectory(prefix="waits-") as folder:
            _look(row, Path(folder), most)
    except Exception:  # noqa: BLE001 - whatever befalls one object is told in its row
        row.failed = traceback.format_exc(limit=-2)[-400:]
    row.seconds = time.monotonic() - began
    return row


def _look(row: Row, folder: Path, most: int) -> None:
    op = ops.load(row.op)
    workload = op.workloads["ci"][-1]
    kernel = loaded(row, folder)
    seen: set[tuple[int, str]] = set()
    known: dict[int, ObjectProgram] = {}
    plain = ObjectProgram.run

    def looked_at(program: ObjectProgram, name: str, *given: Any, **options: Any) -> ObjectRan:
        if id(program) not in known:
            known[id(program)] = program
            row.kernels += len(program.object.kernels)
            row.warnings += [
                str(found)
                for each in program.object.kernels
                for found in program.missing_waits(each)
            ]
        launch = Launch(program, name, given, options, plain)
        if (id(program), name) not in seen:
            seen.add((id(program), name))
            row.launched += 1
            launch.change(row, most)
        ran = plain(program, name, *given, **options)
        row.alarms += [str(found) for found in ran.findings]
        return ran

    with patch.object(ObjectProgram, "run", looked_at):
        kernel.launch(call_of(kernel, op, workload, row.dtype))


def call_of(kernel: Kernel, op: Op, workload: Workload, dtype: str) -> Call:
    """A call on normal values, and on outputs of zeros."""
    drawn = inputs.draw(op, workload, dtype, inputs.BASE)
    zeros = [
        torch.zeros(spec.sizes(workload.dims), dtype=getattr(torch, spec.resolve(dtype)))
        for spec in op.signature.outputs
    ]
    upload, scalars = kernel.device.upload, op.signature.scalar_values(workload.scalars)
    return Call([*map(upload, drawn)], [*map(upload, zeros)], workload.dims, scalars)


def loaded(row: Row, folder: Path) -> Kernel:
    backend, op, chip = registry.load(row.backend), ops.load(row.op), target.load(row.target)
    [candidate] = catalogue.candidates(row.op, backend)
    request = Build(candidate, op.signature, row.dtype, chip, {}, {}, runnable=False)
    if row.backend == "hip":
        request = replace(request, executed=True)
        artifact = backend.build(request, folder)
        found: Kernel = import_module("portkern.backends.hip.objects").load(
            artifact, request, CHECKS
        )
        return found
    os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
    file = folder / f"{row.op}.py"
    file.write_text(candidate.source, encoding="utf-8")
    return backend.load(
        Artifact(file, "hsaco"), request, Venue("object", row.target, sanitize=CHECKS)
    )


@dataclass
class Launch:
    """A launch that is done again and again, each time with another word of code, on the same
    memory."""

    program: ObjectProgram
    name: str
    given: tuple[Any, ...]
    options: Mapping[str, Any]
    plain: Callable[..., ObjectRan]

    def change(self, row: Row, most: int) -> None:
        family = TABLES[self.program.object.processor]
        waits, barriers = [], []
        for at, mnemonic, next_at in self._own():
            if mnemonic in FOR_STORES:
                row.for_stores += 1
            elif mnemonic in WAITS[family]:
                waits.append((at, mnemonic))
            elif self._waves > 1 and (size := BARRIERS.get(mnemonic)):
                barriers.append({at: NOTHING} if size == 1 else {at: NOTHING, next_at: NOTHING})
        drawn = random.Random(46).sample(waits, min(most, len(waits)))
        memory = [ctypes.string_at(b.address, b.size) for b in self._buffers]
        right = self._after(self.program, memory)
        for at, mnemonic in sorted(drawn):
            self._try(row.deleted, {at: NOTHING}, memory, right)
            weaker = self._weaker(at, WAITS[family][mnemonic])
            if weaker is not None:
                self._try(row.weakened, {at: weaker}, memory, right)
        for words in barriers[:most]:
            self._try(row.barriers, words, memory, right)
        self._restore(memory)

    @property
    def _waves(self) -> int:
        """The waves of a workgroup; a barrier orders nothing in one of a single wave."""
        block: tuple[int, int, int] = self.given[2]
        return math.prod(block) // self.program.object.kernel(self.name).wave_size

    @property
    def _buffers(self) -> Sequence[LaunchBuffer]:
        return [b for b in self.options.get("buffers", ()) if b.size]

    def _own(self) -> Iterator[tuple[int, str, int]]:
        """Address and mnemonic of the kernel's own instructions, and the address behind a barrier's
        first half at which its other half stands."""
        kernels = self.program.object.kernels
        start = kernels[self.name].entry
        end = min((k.entry for k in kernels.values() if k.entry > start), default=1 << 62)
        own = [
            one
            for one in self.program.instructions(kernels[self.name].wave_size)
            if start <= one.address < end
        ]
        for number, one in enumerate(own):
            halves = (x.address for x in own[number:] if x.mnemonic == "s_barrier_wait")
            other = next(halves, 0) if one.mnemonic == "s_barrier_signal" else 0
            yield one.address, one.mnemonic, other

    def _weaker(self, at: int, fields: Sequence[Sequence[tuple[int, int]]]) -> int | None:
        """The wait with each of its counts raised by one; None where none can be."""
        [word] = struct.unpack_from("<I", self.program.object.image, at)
        changed = int(word)
        for parts in fields:
            low, (count, bits) = 0, (0, 0)
            for first, size in parts:
                count |= (word >> first & ((1 << size) - 1)) << low
                low, bits = low + size, bits + size
            if count == (1 << bits) - 1:
                continue
            count += 1
            for first, size in parts:
                changed &= ~(((1 << size) - 1) << first)
                changed |= (count & ((1 << size) - 1)) << first
                count >>= size
        return changed if changed != word else None

    def _try(
        self, counted: Counted, words: Mapping[int, int], memory: Sequence[bytes], right: bytes
    ) -> None:
        altered = self.program.altered(words)
        self._restore(memory)
        ran = self.plain(altered, self.name, *self.given, **{**self.options, "limit": LIMIT})
        running = any(found.executed for found in ran.findings)
        code = {f.address for f in altered.missing_waits(self.name)}
        code -= {f.address for f in self.program.missing_waits(self.name)}
        differs = self._contents() != right
        counted.changed += 1
        counted.running += running
        counted.code += bool(code)
        counted.either += running or bool(code)
        counted.differs += differs
        came_by = running or differs or self._came_by(words, memory)
        counted.executed += came_by
        if came_by and not running:
            [first, *_] = words
            said = "the code says" if code else "differs" if differs else "silent"
            what = next(name for at, name, _ in self._own() if at == first)
            counted.silent.append(f"{self.name[:60]} {first:#x} {what}: {said}")

    def _came_by(self, words: Mapping[int, int], memory: Sequence[bytes]) -> bool:
        """Whether a wave executes the first of these: a trap in its place ends the launch."""
        [first, *_] = words
        trap = TRAPS[TABLES[self.program.object.processor]]
        self._restore(memory)
        ran = self.plain(
            self.program.altered({first: trap}), self.name, *self.given, **self.options
        )
        return any(found.kind is FindingKind.TRAP for found in ran.findings)

    def _after(self, program: ObjectProgram, memory: Sequence[bytes]) -> bytes:
        self._restore(memory)
        self.plain(program, self.name, *self.given, **self.options)
        return self._contents()

    def _contents(self) -> bytes:
        return b"".join(ctypes.string_at(b.address, b.size) for b in self._buffers)

    def _restore(self, memory: Sequence[bytes]) -> None:
        for held, content in zip(self._buffers, memory, strict=True):
            ctypes.memmove(held.address, content, len(content))


def summary(rows: Collection[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sums of each target and backend; objects that could not be run are counted alone."""
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        of = sums[row["target"], row["backend"]]
        of["failed" if row["failed"] else "objects"] += 1
        of.update({name: row[name] for name in ("kernels", "launched", "for_stores")})
        of.update({name: len(row[name]) for name in ("alarms", "warnings")})
        for name in ("deleted", "weakened", "barriers"):
            counted = {key: value for key, value in row[name].items() if key != "silent"}
            of.update({f"{name} {key}": value for key, value in counted.items()})
    return [{"target": arch, "backend": name, **of} for (arch, name), of in sorted(sums.items())]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A summary's rows as a table in Markdown, and their sum."""
    heads = ["object", "objects, kernels", "false alarms", "waits left out, executed", "found"]
    heads += ["the code says", "counts raised, executed", "found", "barriers left out, executed"]
    heads += ["found"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    every: Counter[str] = Counter()
    for row in rows:
        of = Counter({key: value for key, value in row.items() if isinstance(value, int)})
        every += of
        lines.append(_line(f"{row['backend']}, {row['target']}", of))
    return "\n".join([*lines, _line("all", every)])


def _line(name: str, of: Mapping[str, int]) -> str:
    def found(kind: str) -> list[str]:
        executed, running = of[f"{kind} executed"], of[f"{kind} running"]
        share = f" ({running / executed:.1%})" if executed else ""
        return [f"{of[f'{kind} changed']:,}, {executed:,}", f"{running:,}{share}"]

    code, either = of["deleted code"], of["deleted either"]
    cells = [name, f"{of['objects']:,}, {of['kernels']:,}", str(of["alarms"]), *found("deleted")]
    cells.append(f"{code:,} of {either:,}")
    return "| " + " | ".join([*cells, *found("weakened"), *found("barriers")]) + " |"


if __name__ == "__main__":
    main()
