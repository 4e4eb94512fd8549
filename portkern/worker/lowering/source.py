"""Loops as a kernel's source: C++ with OpenMP, or CUDA and HIP with a thread for each element."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from portkern.worker.lowering.body import Body, Kind, free
from portkern.worker.lowering.lengths import Lengths
from portkern.worker.lowering.stages import Loops, LoopStage, StageBuffer

Language = Literal["c++", "gpu"]

#: Elements from which on threads of a CPU are worth their start.
PARALLEL_FROM = 16384
THREADS = 256
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Interface:
    """The interface of the entry: its ``prototype`` without the semicolon, and the ``pointers``
    and ``numbers`` with their C types and what each is called in the prototype."""

    prototype: str
    pointers: Sequence[tuple[str, str, str]]
    numbers: Sequence[tuple[str, str, str]]

    @property
    def taken(self) -> frozenset[str]:
        names = (name for _, name, _ in (*self.pointers, *self.numbers))
        return frozenset({*names, "in", "out", "axes", "stream"})

    def locals(self) -> Iterator[str]:
        """The lines that declare locals where the entry takes structures."""
        for kind, name, given in self.pointers:
            if name != given:
                yield f"  {kind}* {name} = {given};"
        for kind, name, given in self.numbers:
            if name != given:
                yield f"  const {kind} {name} = {given};"


def cpp(loops: Loops, lengths: Lengths, interface: Interface, head: str) -> str:
    parts = [head, f"#define PARALLEL_FROM {PARALLEL_FROM}  // knob: 4096 16384 65536 262144"]
    parts += ["#include <cmath>\n#include <cstdint>\n#include <memory>\n"]
    parts += [array("static const", *item) for item in constants(loops)]
    lines = [f"{interface.prototype} {{", *interface.locals()]
    for buffer in loops.buffers:
        count = lengths.count(buffer.shape)
        lines.append(f"  const std::unique_ptr<{buffer.kind}[]> {buffer.name}_owner(")
        lines.append(f"      new {buffer.kind}[{count} > 0 ? {count} : 1]);")
        lines.append(f"  {buffer.kind}* const {buffer.name} = {buffer.name}_owner.get();")
    for stage in loops.stages:
        lines += _nest(stage, lengths, interface.taken)
    return "\n".join([*parts, *lines, "  return 0;", "}", ""])


def _nest(stage: LoopStage, lengths: Lengths, taken: frozenset[str]) -> list[str]:
    body = Body(taken)
    counters: list[str] = []
    long = [n for n, length in enumerate(stage.shape) if length != 1]
    outer = long[:-1] or long
    if long:
        collapse = f" collapse({len(outer)})" if len(outer) > 1 else ""
        count = lengths.count((*stage.shape, *stage.work))
        body.say(f"#pragma omp parallel for{collapse} if ({count} >= PARALLEL_FROM)")
    for n in range(len(stage.shape)):
        counters.append(free(f"i{n}", taken) if n in long else "0")
    heads = [
        f"for (int64_t {counters[n]} = 0; {counters[n]} < {lengths.text(stage.shape[n])}; "
        f"++{counters[n]})"
        for n in long
    ]
    within(body, heads, lambda: stage.write(body, tuple(counters)))
    return body.lines


def within(body: Body, heads: Sequence[str], write: Callable[[], None]) -> None:
    """``write`` in loops that begin so."""
    if not heads:
        with body.block(""):
            write()
        return
    with body.block(heads[0]):
        if len(heads) > 1:
            within(body, heads[1:], write)
        else:
            write()


def gpu(loops: Loops, lengths: Lengths, interface: Interface, head: str) -> str:
    """One source for both vendors."""
    parts = ["#include <portkern/portable.h>", head]
    parts += [f"#define THREADS {THREADS}  // knob: 64 128 256 512 1024"]
    parts += [array("__device__ const", *item) for item in constants(loops)]
    known = {name: f"{kind}*" for kind, name, _ in interface.pointers}
    known |= {buffer.name: f"{buffer.kind}*" for buffer in loops.buffers}
    known |= {name: f"const {kind}" for kind, name, _ in interface.numbers}
    launches: list[str] = []
    for number, stage in enumerate(loops.stages):
        name = free(f"stage{number}", frozenset(known))
        kernel, launch = _kernel(name, stage, lengths, known)
        parts.append(kernel)
        launches += launch
    lines = [f"{interface.prototype} {{", *interface.locals()]
    lines += allocated(loops.buffers, lengths)
    lines += launches
    lines += [f"  cudaFreeAsync({buffer.name}, stream);" for buffer in loops.buffers]
    return "\n".join([*parts, *lines, "  return (int)cudaGetLastError();", "}", ""])


def allocated(buffers: Sequence[StageBuffer], lengths: Lengths) -> list[str]:
    lines = []
    for buffer in buffers:
        count = lengths.count(buffer.shape)
        lines += [
            f"  {buffer.kind}* {buffer.name} = nullptr;",
            f"  if (const cudaError_t wrong = cudaMallocAsync((void**)&{buffer.name},",
            f"          ({count} > 0 ? {count} : 1) * sizeof({buffer.kind}), stream))",
            "    return (int)wrong;",
        ]
    return lines


def _kernel(
    name: str, stage: LoopStage, lengths: Lengths, known: dict[str, str]
) -> tuple[str, list[str]]:
    taken = frozenset(known)
    place, count, step, blocks = (free(n, taken) for n in ("i", "count", "step", "blocks"))
    body = Body(taken, indent=2)
    total = lengths.count(stage.shape)
    stage.write(body, lengths.split(body, place, stage.shape))
    used = set(_NAME.findall("\n".join([*body.lines, total])))
    given = [name for name in known if name in used]
    lines = [
        f"static __global__ void {name}({', '.join(f'{known[n]} {n}' for n in given)}) {{",
        f"  const int64_t {count} = {total}, {step} = (int64_t)gridDim.x * blockDim.x;",
        f"  int64_t {place} = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;",
        f"  for (; {place} < {count}; {place} += {step}) {{",
        *[line for line in body.lines if "#pragma" not in line],
        "  }",
        "}",
        "",
    ]
    launch = [
        f"  if (const int64_t {count} = {total}; {count} > 0) {{",
        f"    const int64_t {blocks} = ({count} + THREADS - 1) / THREADS;",
        f"    {name}<<<{blocks} < 65535 ? {blocks} : 65535, THREADS, 0, stream>>>("
        f"{', '.join(given)});",
        "  }",
    ]
    return "\n".join(lines), launch


def named(lines: Sequence[str], taken: frozenset[str]) -> list[str]:
    """The lines with a name of its own for each local that stands there as ``$name``."""
    return [re.sub(r"\$(\w+)", lambda local: free(local[1], taken), line) for line in lines]


def constants(loops: Loops) -> Iterator[tuple[str, Kind, list[str]]]:
    for name, (kind, values) in loops.constants.items():
        yield name, kind, values


def array(how: str, name: str, kind: Kind, values: list[str]) -> str:
    rows = [", ".join(values[n : n + 8]) for n in range(0, len(values), 8)]
    return f"{how} {kind} {name}[] = {{\n  " + ",\n  ".join(rows) + "};"
