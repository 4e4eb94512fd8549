"""Loops as CUDA and HIP with knobs: teams of threads for rows, tiles in shared memory for products,
several elements per thread for the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from portkern.worker.lowering import schedule, source
from portkern.worker.lowering.body import Body, Fold, Index, free
from portkern.worker.lowering.lengths import Lengths
from portkern.worker.lowering.schedule import Group
from portkern.worker.lowering.source import Interface
from portkern.worker.lowering.stages import Loops, Stage

_THREADS = """\
#define THREADS 256  // knob: 64 128 256 512 1024
#define ITEMS 2      // knob: 1 2 4 8
"""
_TEAM = """\
#define TEAM 128  // knob: 32 64 128 256
#define ROWS 1    // knob: 1 2 4
"""
_TILE = """\
#define TILE 64   // knob: 32 64
#define MICRO 4   // knob: 2 4 8
#define DEPTH 16  // knob: 8 16 32
#define SIDE (TILE / MICRO)
"""
_WIDE = """\
#define WIDE 1  // knob: 0 1
#if WIDE
typedef double sum_t;
#else
typedef float sum_t;
#endif
"""
_NAME = re.compile(r"[A-Za-z_]\w*")


class TunedGpu:
    """``$name`` in what is written is a local's, which no tensor and no axis has."""

    def __init__(self, loops: Loops, lengths: Lengths, interface: Interface) -> None:
        self.loops, self.lengths, self.interface = loops, lengths, interface
        self.taken = interface.taken
        self.known = {name: f"{kind}*" for kind, name, _ in interface.pointers}
        self.known |= {buffer.name: f"{buffer.kind}*" for buffer in loops.buffers}
        self.known |= {name: f"const {kind}" for kind, name, _ in interface.numbers}

    def written(self, groups: Sequence[Group], head: str) -> str:
        own = schedule.private(groups, self.loops, self.taken)
        # In registers where a thread has an element to itself; else other threads read it.
        self.loops.own = {
            stage.buffer: own[stage.buffer]
            for group in groups
            if group.whole and (group.is_product or not self._is_team(group))
            for stage in group.stages
            if stage.buffer in own
        }
        shared = [buffer for buffer in self.loops.buffers if buffer.name not in self.loops.own]
        kernels, launches = zip(
            *(self._kernel(n, group) for n, group in enumerate(groups)), strict=True
        )
        constants = [source.array("__device__ const", *one) for one in source.constants(self.loops)]
        lines = [f"{self.interface.prototype} {{", *self.interface.locals()]
        lines += source.allocated(shared, self.lengths)
        lines += [line for launch in launches for line in launch]
        lines += [f"  cudaFreeAsync({buffer.name}, stream);" for buffer in shared]
        self.loops.own = {}
        text = "\n".join(
            [*constants, *kernels, *lines, "  return (int)cudaGetLastError();", "}", ""]
        )
        knobs = "".join(
            knob
            for knob, word in (
                (_THREADS, "ITEMS"),
                (_TEAM, "TEAM"),
                (_TILE, "TILE"),
                (_WIDE, "sum_t"),
            )
            if word in text
        )
        return "\n".join(["#include <portkern/portable.h>", head, knobs + text])

    def _is_team(self, group: Group) -> bool:
        folds = [stage.fold for stage in group.stages if stage.fold]
        return any(not fold.across for fold in folds) or not (group.whole or self._is_across(group))

    def _is_across(self, group: Group) -> bool:
        [stage, *others] = group.stages
        return not others and stage.fold is not None and stage.fold.across

    def _kernel(self, number: int, group: Group) -> tuple[str, list[str]]:
        name = free(f"group{number}", frozenset(self.known))
        if group.is_product:
            return self._product(name, group)
        if self._is_team(group):
            return self._team(name, group)
        return self._flat(name, group)

    def _function(self, name: str, lines: Sequence[str], bounds: str) -> tuple[str, list[str]]:
        """The kernel around ``lines``, and the names that it is called with."""
        lines = source.named(lines, frozenset(self.known))
        used = set(_NAME.findall("\n".join(lines)))
        given = [one for one in self.known if one in used and one not in self.loops.own]
        parameters = ", ".join(f"{self.known[one]} {one}" for one in given)
        head = f"static __global__ void __launch_bounds__({bounds}) {name}({parameters}) {{"
        return "\n".join([head, *lines, "}", ""]), given

    def _launch(
        self, name: str, given: Sequence[str], *, blocks: str, each: str, threads: str
    ) -> list[str]:
        """``blocks``: how much there is, of which a block does ``each``."""
        lines = [
            f"  if (const int64_t $count = {blocks}; $count > 0) {{",
            f"    const int64_t $blocks = ($count + {each} - 1) / ({each});",
            f"    {name}<<<(unsigned)($blocks < 65535 ? $blocks : 65535), {threads}, 0, stream>>>("
            f"{', '.join(given)});",
            "  }",
        ]
        return source.named(lines, frozenset(self.known))

    def _private(self, group: Group) -> list[str]:
        """Registers."""
        names = {stage.buffer for stage in group.stages}
        return [
            f"{buffer.kind} {buffer.name}[1];"
            for buffer in self.loops.buffers
            if buffer.name in names and buffer.name in self.loops.own
        ]

    def _flat(self, name: str, group: Group) -> tuple[str, list[str]]:
        """A thread for some elements, a block's width apart: neighbours read neighbours."""
        shape = group.stages[0].shape
        total = self.lengths.count(shape)
        body = Body(self.taken)
        body.say(f"const int64_t $total = {total}, $step = (int64_t)gridDim.x * THREADS * ITEMS;")
        body.say("int64_t $first = (int64_t)blockIdx.x * THREADS * ITEMS + threadIdx.x;")
        with body.block("for (; $first < $total; $first += $step)"):
            body.say("#pragma unroll")
            with body.block("for (int $item = 0; $item < ITEMS; ++$item)"):
                body.say("const int64_t $at = $first + $item * THREADS;")
                with body.block("if ($at < $total)"):
                    for line in self._private(group):
                        body.say(line)
                    index = self.lengths.split(body, "$at", shape)
                    for stage in group.stages:
                        with body.block(""):
                            stage.write(body, index)
        kernel, given = self._function(name, body.lines, "THREADS")
        launch = self._launch(name, given, blocks=total, each="THREADS * ITEMS", threads="THREADS")
        return kernel, launch

    def _team(self, name: str, group: Group) -> tuple[str, list[str]]:
        """A team of threads for a row: each has every TEAM-th element of it."""
        total = self.lengths.count(group.outer)
        shared: dict[str, str] = {}
        body = Body(self.taken)
        body.say(f"const int64_t $total = {total}, $step = (int64_t)gridDim.x * ROWS;")
        with body.block(
            "for (int64_t $first = (int64_t)blockIdx.x * ROWS; $first < $total; $first += $step)"
        ):
            body.say("const int64_t $row = $first + threadIdx.y;")
            body.say("const bool $live = $row < $total;")
            index = self.lengths.split(body, "$row", group.outer)
            for stage in group.stages:
                with body.block(""):
                    self._stage(body, stage, index, shared)
                body.say("__syncthreads();")
        declared = [f"  __shared__ {held} {one}[ROWS][TEAM];" for one, held in shared.items()]
        kernel, given = self._function(name, [*declared, *body.lines], "TEAM * ROWS")
        launch = self._launch(name, given, blocks=total, each="ROWS", threads="dim3(TEAM, ROWS)")
        return kernel, launch

    def _stage(self, body: Body, stage: Stage, outer: Index, shared: dict[str, str]) -> None:
        shape = stage.shape[len(outer) :]
        if not stage.fold:
            head = f"int64_t $at = threadIdx.x; $at < {self.lengths.count(shape)}; $at += TEAM"
            with body.block(f"if ($live) for ({head})"):
                stage.write(body, (*outer, *self.lengths.split(body, "$at", shape)))
            return
        inner: Index = ()
        if any(length != 1 for length in shape):
            with body.block(
                f"for (int64_t $each = 0; $each < {self.lengths.count(shape)}; ++$each)"
            ):
                inner = self.lengths.split(body, "$each", shape)
                self._fold(body, stage, stage.fold, (*outer, *inner), shared)
                body.say("__syncthreads();")
        else:
            self._fold(body, stage, stage.fold, (*outer, *("0" for _ in shape)), shared)

    def _fold(
        self, body: Body, stage: Stage, fold: Fold, index: Index, shared: dict[str, str]
    ) -> None:
        """Each thread's part, then halves of the team put together."""
        assert stage.store
        names = [body.name("a") for _ in fold.state]
        for name, (kind, begin) in zip(names, fold.state, strict=True):
            held = "sum_t" if fold.wide and kind == "double" else kind
            shared[f"all_{held}_{names.index(name)}"] = held
            body.say(f"{held} {name} = {begin};")
        places = [
            f"all_{'sum_t' if fold.wide and kind == 'double' else kind}_{n}"
            for n, (kind, _) in enumerate(fold.state)
        ]
        count = self.lengths.count(fold.lengths)
        head = f"int64_t $part = threadIdx.x; $part < {count}; $part += TEAM"
        with body.block(f"if ($live) for ({head})"):
            fold.take(body, index, self.lengths.split(body, "$part", fold.lengths), names)
        for place, name in zip(places, names, strict=True):
            body.say(f"{place}[threadIdx.y][threadIdx.x] = {name};")
        with body.block("for (int $half = TEAM / 2; $half > 0; $half /= 2)"):
            body.say("__syncthreads();")
            with body.block("if (threadIdx.x < $half)"):
                ours = [f"{place}[threadIdx.y][threadIdx.x]" for place in places]
                theirs = [f"{place}[threadIdx.y][threadIdx.x + $half]" for place in places]
                for line in fold.join(ours, theirs):
                    body.say(line)
        with body.block("if ($live && threadIdx.x == 0)"):
            stage.store(body, index, fold.result([f"{p}[threadIdx.y][0]" for p in places]))

    def _product(self, name: str, group: Group) -> tuple[str, list[str]]:
        """A block for a tile, a thread for MICRO x MICRO elements of it. Beyond the ends the last
        row and column stand in, and are not stored; beyond the depth there are zeros."""
        stage = group.stages[0]
        assert stage.product and stage.fold
        a, b = stage.product.a, stage.product.b
        *_, m, n = (self.lengths.text(one) for one in stage.shape)
        depth = self.lengths.text(a.shape[-1])
        sum_t = "sum_t" if stage.fold.wide else stage.fold.state[0][0]
        down, along = f"(({m} + TILE - 1) / TILE)", f"(({n} + TILE - 1) / TILE)"
        tiles = f"{self.lengths.count(stage.shape[:-2])} * {down} * {along}"
        body = Body(self.taken)
        body.say(f"__shared__ {a.kind} $left[DEPTH][TILE + 1];")
        body.say(f"__shared__ {b.kind} $right[DEPTH][TILE];")
        body.say("const int $t = threadIdx.x, $ti = $t / SIDE, $tj = $t % SIDE;")
        body.say(f"const int64_t $down = {down}, $along = {along}, $tiles = {tiles};")
        with body.block("for (int64_t $tile = blockIdx.x; $tile < $tiles; $tile += gridDim.x)"):
            batch = self.lengths.split(body, "($tile / $along / $down)", stage.shape[:-2])
            body.say(
                "const int64_t $i0 = $tile / $along % $down * TILE, $j0 = $tile % $along * TILE;"
            )
            body.say(f"{sum_t} $acc[MICRO][MICRO] = {{}};")
            with body.block(f"for (int64_t $k0 = 0; $k0 < {depth}; $k0 += DEPTH)"):
                self._filled(
                    body, "$left", lambda i, k: a.at(body, (*batch, i, k)), "$i0", m, depth
                )
                self._filled(
                    body, "$right", lambda j, k: b.at(body, (*batch, k, j)), "$j0", n, depth
                )
                body.say("__syncthreads();")
                self._multiplied(body, sum_t)
                body.say("__syncthreads();")
            self._stored(body, group, batch, (m, n))
        kernel, given = self._function(name, body.lines, "SIDE * SIDE")
        launch = self._launch(name, given, blocks=tiles, each="1", threads="SIDE * SIDE")
        return kernel, launch

    def _filled(
        self,
        body: Body,
        name: str,
        element: Callable[[str, str], str],
        start: str,
        length: str,
        depth: str,
    ) -> None:
        """Neighbours fetch along the depth of the left side, along a row of the right one."""
        along, across = (
            ("$f % DEPTH", "$f / DEPTH") if name == "$left" else ("$f / TILE", "$f % TILE")
        )
        with body.block("for (int $f = $t; $f < TILE * DEPTH; $f += SIDE * SIDE)"):
            body.say(f"const int64_t $k = $k0 + {along}, $p = {start} + {across};")
            body.say(f"const int64_t $q = $p < {length} ? $p : {length} - 1;")
            body.say(f"{name}[{along}][{across}] = 0;")
            with body.block(f"if ($k < {depth})"):
                body.say(f"{name}[{along}][{across}] = {element('$q', '$k')};")

    def _multiplied(self, body: Body, sum_t: str) -> None:
        for line in (
            "#pragma unroll",
            "for (int $d = 0; $d < DEPTH; ++$d) {",
            f"  {sum_t} $rights[MICRO];",
            "  #pragma unroll",
            "  for (int $u = 0; $u < MICRO; ++$u) $rights[$u] = $right[$d][$tj + $u * SIDE];",
            "  #pragma unroll",
            "  for (int $w = 0; $w < MICRO; ++$w) {",
            f"    const {sum_t} $one = $left[$d][$ti + $w * SIDE];",
            "    #pragma unroll",
            "    for (int $u = 0; $u < MICRO; ++$u) $acc[$w][$u] += $one * $rights[$u];",
            "  }",
            "}",
        ):
            body.say(line)

    def _stored(self, body: Body, group: Group, batch: Index, ends: tuple[str, str]) -> None:
        first, *others = group.stages
        assert first.store and first.product
        with body.block("for (int $w = 0; $w < MICRO; ++$w)"):
            with body.block("for (int $u = 0; $u < MICRO; ++$u)"):
                body.say("const int64_t $i = $i0 + $ti + $w * SIDE, $j = $j0 + $tj + $u * SIDE;")
                with body.block(f"if ($i < {ends[0]} && $j < {ends[1]})"):
                    for line in self._private(group):
                        body.say(line)
                    first.store(body, (*batch, "$i", "$j"), f"({first.product.a.kind})$acc[$w][$u]")
                    for stage in others:
                        with body.block(""):
                            stage.write(body, (*batch, "$i", "$j"))
