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

_THREADS = "#define THREADS 256  // knob: 64 128 256 512 1024\n"
_ITEMS = "#define ITEMS 2  // knob: 1 2 4 8\n"
_TEAM = """\
#define TEAM 128  // knob: 32 64 128 256
#define ROWS 1    // knob: 1 2 4
"""
_PARTS = "#define PARTS 64  // knob: 1 4 16 64 256\n"
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
                (_THREADS, "THREADS"),
                (_ITEMS, "ITEMS"),
                (_PARTS, "PARTS"),
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

    def _has_few_outputs(self, group: Group) -> bool:
        """As far as its shape tells: of a whole, or of columns."""
        [stage, *others] = group.stages
        whole = all(length == 1 for length in stage.shape)
        return not others and stage.fold is not None and (whole or stage.fold.across)

    def _kernel(self, number: int, group: Group) -> tuple[str, list[str]]:
        name = free(f"group{number}", frozenset(self.known))
        if group.is_product:
            return self._product(name, group)
        if self._has_few_outputs(group):
            return self._split(name, group.stages[0])
        if self._is_team(group):
            return self._team(name, group)
        return self._flat(name, group)

    def _function(
        self, name: str, lines: Sequence[str], bounds: str, more: Sequence[str] = ()
    ) -> tuple[str, list[str]]:
        """The kernel around ``lines``, and the names that it is called with; ``more``: parameters
        of its own."""
        lines = source.named(lines, frozenset(self.known))
        used = set(_NAME.findall("\n".join(lines)))
        given = [one for one in self.known if one in used and one not in self.loops.own]
        own = [f"{self.known[one]} {one}" for one in given]
        parameters = ", ".join([*own, *source.named(more, frozenset(self.known))])
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
        """Each thread's elements, then halves of the team put together."""
        assert stage.store
        places = self._shared_fold(
            body, fold, index, shared, ("0", self.lengths.count(fold.lengths))
        )
        with body.block("if ($live && threadIdx.x == 0)"):
            stage.store(body, index, fold.result([f"{p}[threadIdx.y][0]" for p in places]))

    def _shared_fold(
        self,
        body: Body,
        fold: Fold,
        index: Index,
        shared: dict[str, str],
        bounds: tuple[str, str],
    ) -> list[str]:
        """Names of the arrays whose first elements hold the states of the rows."""
        names, held = self._begun(body, fold)
        places = [f"all_{kind}_{n}" for n, kind in enumerate(held)]
        shared |= dict(zip(places, held, strict=True))
        head = f"int64_t $part = {bounds[0]} + threadIdx.x; $part < {bounds[1]}; $part += TEAM"
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
        return places

    def _begun(self, body: Body, fold: Fold) -> tuple[list[str], list[str]]:
        """Names of a state, and its kinds."""
        names = [body.name("a") for _ in fold.state]
        held = ["sum_t" if fold.wide and kind == "double" else kind for kind, _ in fold.state]
        for name, kind, (_, begin) in zip(names, held, fold.state, strict=True):
            body.say(f"{kind} {name} = {begin};")
        return names, held

    def _split(self, name: str, stage: Stage) -> tuple[str, list[str]]:
        """Parts of what is gone over, by blocks of their own; then the parts put together."""
        fold = stage.fold
        assert fold and stage.store
        outputs = self.lengths.count(stage.shape)
        scratch = [f"$scratch{n}" for n in range(len(fold.state))]
        parts, threads = self._in_columns(stage, fold, scratch, outputs)
        if not fold.across:
            parts, threads = self._in_teams(stage, fold, scratch)
        joined = Body(self.taken)
        joined.say(f"const int64_t $total = {outputs}, $step = (int64_t)gridDim.x * THREADS;")
        joined.say("int64_t $at = (int64_t)blockIdx.x * THREADS + threadIdx.x;")
        with joined.block("for (; $at < $total; $at += $step)"):
            names, held = self._begun(joined, fold)
            with joined.block("for (int64_t $part = 0; $part < PARTS; ++$part)"):
                others = [joined.name("b") for _ in names]
                for other, kind, place in zip(others, held, scratch, strict=True):
                    joined.say(f"const {kind} {other} = {place}[$part * $total + $at];")
                for line in fold.join(names, others):
                    joined.say(line)
            index = self.lengths.split(joined, "$at", stage.shape)
            stage.store(joined, index, fold.result(names))
        more = [f"{kind}* {place}" for kind, place in zip(held, scratch, strict=True)]
        first, given = self._function(name, parts, threads, more)
        last, used = self._function(f"{name}_joined", joined.lines, "THREADS", more)
        shape = "THREADS" if fold.across else "dim3(TEAM, ROWS)"
        work = (f"({outputs}) * PARTS", "THREADS") if fold.across else ("PARTS", "ROWS")
        lines = [line for one in zip(held, scratch, strict=True) for line in _room(*one, outputs)]
        lines += self._launch(name, [*given, *scratch], blocks=work[0], each=work[1], threads=shape)
        lines += self._launch(
            f"{name}_joined", [*used, *scratch], blocks=outputs, each="THREADS", threads="THREADS"
        )
        lines += [f"  cudaFreeAsync({place}, stream);" for place in scratch]
        block = ["  {", *lines, "  }"]
        return first + last, source.named(block, frozenset(self.known))

    def _in_columns(
        self, stage: Stage, fold: Fold, scratch: Sequence[str], outputs: str
    ) -> tuple[list[str], str]:
        """A thread for a part of an output; neighbours have neighbouring outputs."""
        body = Body(self.taken)
        body.say(f"const int64_t $outputs = {outputs}, $total = $outputs * PARTS;")
        body.say("int64_t $at = (int64_t)blockIdx.x * THREADS + threadIdx.x;")
        with body.block("for (; $at < $total; $at += (int64_t)gridDim.x * THREADS)"):
            index = self.lengths.split(body, "($at % $outputs)", stage.shape)
            low, high = self._bounds(body, fold, "$at / $outputs")
            names, _ = self._begun(body, fold)
            with body.block(f"for (int64_t $part = {low}; $part < {high}; ++$part)"):
                fold.take(body, index, self.lengths.split(body, "$part", fold.lengths), names)
            for place, name in zip(scratch, names, strict=True):
                body.say(f"{place}[$at] = {name};")
        return body.lines, "THREADS"

    def _in_teams(self, stage: Stage, fold: Fold, scratch: Sequence[str]) -> tuple[list[str], str]:
        """A team for a part of the one output."""
        body, shared = Body(self.taken), dict[str, str]()
        step = "$first += (int64_t)gridDim.x * ROWS"
        with body.block(
            f"for (int64_t $first = (int64_t)blockIdx.x * ROWS; $first < PARTS; {step})"
        ):
            body.say("const int64_t $row = $first + threadIdx.y;")
            body.say("const bool $live = $row < PARTS;")
            bounds = self._bounds(body, fold, "$row")
            index = ("0",) * len(stage.shape)
            places = self._shared_fold(body, fold, index, shared, bounds)
            with body.block("if ($live && threadIdx.x == 0)"):
                for place, one in zip(scratch, places, strict=True):
                    body.say(f"{place}[$row] = {one}[threadIdx.y][0];")
            body.say("__syncthreads();")
        declared = [f"  __shared__ {held} {one}[ROWS][TEAM];" for one, held in shared.items()]
        return [*declared, *body.lines], "TEAM * ROWS"

    def _bounds(self, body: Body, fold: Fold, part: str) -> tuple[str, str]:
        count = self.lengths.count(fold.lengths)
        number = body.let("int64_t", part)
        return (
            body.let("int64_t", f"{count} * {number} / PARTS"),
            body.let("int64_t", f"{count} * ({number} + 1) / PARTS"),
        )

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


def _room(kind: str, name: str, count: str) -> list[str]:
    """For a state of each part and output."""
    return [
        f"  {kind}* {name} = nullptr;",
        f"  if (const cudaError_t wrong = cudaMallocAsync((void**)&{name},",
        f"          (({count}) > 0 ? ({count}) * PARTS : 1) * sizeof({kind}), stream))",
        "    return (int)wrong;",
    ]
