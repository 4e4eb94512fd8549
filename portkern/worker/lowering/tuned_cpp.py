"""Loops as C++ with knobs: rows that stay in cache, sums in lanes, products in tiles."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from portkern.worker.lowering import schedule, source
from portkern.worker.lowering.body import Body, Fold, Index
from portkern.worker.lowering.lengths import Lengths
from portkern.worker.lowering.operations import nested
from portkern.worker.lowering.schedule import Group
from portkern.worker.lowering.source import Interface
from portkern.worker.lowering.stages import Loops, LoopStage, StageBuffer

_KNOBS = """\
#define PARALLEL_FROM 16384  // knob: 4096 16384 65536 262144
#define WIDE 1               // knob: 0 1
#define SIMD 1               // knob: 0 1
"""
_LANES = "#define LANES 16             // knob: 1 4 8 16 32 64\n"
_PARTS = "#define PARTS 8              // knob: 1 2 4 8 16 32\n"
_TILE = """\
#define TILE_ROWS 4          // knob: 2 4 6 8
#define TILE_COLS 16         // knob: 8 16 32 64
#define CHUNK 96             // knob: 24 48 96 192 384
"""
_HEAD = """\
// Sums are carried in sum_t. With SIMD, elements of a row are computed in lanes.
#if WIDE
typedef double sum_t;
#else
typedef float sum_t;
#endif
#if SIMD
#define EACH _Pragma("omp simd")
#else
#define EACH
#endif
#include <cmath>
#include <cstdint>
#include <memory>
"""


class TunedCpp:
    """``$name`` in what is written is a local's, which no tensor and no axis has; counters of a
    stage's axes are i0, i1, …"""

    def __init__(self, loops: Loops, lengths: Lengths, interface: Interface) -> None:
        self.loops, self.lengths, self.interface = loops, lengths, interface
        self.taken = interface.taken

    def written(self, groups: Sequence[Group], head: str) -> str:
        self.loops.own = schedule.private(groups, self.loops, self.taken)
        lines = [f"{self.interface.prototype} {{", *self.interface.locals()]
        shared = [buffer for buffer in self.loops.buffers if buffer.name not in self.loops.own]
        lines += [line for buffer in shared for line in self._allocated(buffer, 0, "  ")]
        for group in groups:
            lines += self._group(group)
        constants = [source.array("static const", *one) for one in source.constants(self.loops)]
        self.loops.own = {}
        lines = source.named(lines, self.taken)
        text = "\n".join([*constants, *lines, "  return 0;", "}", ""])
        knobs = _KNOBS + "".join(
            knob
            for knob, word in ((_LANES, "LANES"), (_PARTS, "PARTS"), (_TILE, "TILE_ROWS"))
            if word in text
        )
        return "\n".join([head, knobs + _HEAD, text])

    def _allocated(self, buffer: StageBuffer, rows: int, indent: str) -> list[str]:
        """The lines that allocate all of a value, or one row of it."""
        count = self.lengths.count(buffer.shape[rows:])
        return [
            f"{indent}const std::unique_ptr<{buffer.kind}[]> {buffer.name}_owner(",
            f"{indent}    new {buffer.kind}[{count} > 0 ? {count} : 1]);",
            f"{indent}{buffer.kind}* const {buffer.name} = {buffer.name}_owner.get();",
        ]

    def _group(self, group: Group) -> list[str]:
        body = Body(self.taken)
        longest = max(((*stage.shape, *stage.work) for stage in group.stages), key=len)
        if group.is_product:
            self._product(body, group)
        elif self._is_whole_fold(group):
            self._parts(body, group.stages[0])
        else:
            count = self.lengths.count(longest)
            fold = group.stages[0].fold
            if fold:
                count = f"{count} * {self.lengths.count(fold.lengths)}"
            body.say(f"#pragma omp parallel if ({count} >= PARALLEL_FROM)")
            with body.block(""):
                self._rows(body, group)
        return body.lines

    def _is_whole_fold(self, group: Group) -> bool:
        """Whether a group is a fold to one element, so that there are no rows which threads could
        share."""
        [stage, *others] = group.stages
        return not others and stage.fold is not None and all(one == 1 for one in stage.shape)

    def _own(self, group: Group) -> list[str]:
        names = {stage.buffer for stage in group.stages}
        return [
            line
            for buffer in self.loops.buffers
            if buffer.name in names and buffer.name in self.loops.own
            for line in self._allocated(buffer, self.loops.own[buffer.name], "    ")
        ]

    def _rows(self, body: Body, group: Group) -> None:
        """A thread's rows, one after the other through all stages."""
        body.lines += self._own(group)
        index = schedule.counters(group.stages[0], self.taken)[: group.rows]
        heads = self._heads(group.outer, index)
        [stage, *others] = group.stages
        across = not others and stage.fold is not None and stage.fold.across
        if across:
            last = self.lengths.text(stage.shape[-1])
            heads.append(f"for (int64_t $j0 = 0; $j0 < {last}; $j0 += LANES)")
        if heads:
            collapse = f" collapse({len(heads)})" if len(heads) > 1 else ""
            body.say(f"#pragma omp for schedule(static){collapse}")
        else:
            body.say("#pragma omp single")

        def rows() -> None:
            if across:
                assert stage.fold
                self._across(body, stage, stage.fold, index)
                return
            for one in group.stages:
                with body.block(""):
                    self._stage(body, one, index)

        source.within(body, heads, rows)

    def _heads(self, outer: Sequence[sympy.Expr], index: Index) -> list[str]:
        return [
            f"for (int64_t {counter} = 0; {counter} < {self.lengths.text(length)}; ++{counter})"
            for counter, length in zip(index, outer, strict=True)
            if length != 1
        ]

    def _stage(self, body: Body, stage: LoopStage, outer: Index) -> None:
        inner = [self.lengths.text(length) for length in stage.shape[len(outer) :]]
        if stage.fold:
            with nested(body, inner) as counters:
                self._lanes(body, stage, stage.fold, (*outer, *counters))
            return
        each = "" if self._loops_within(stage) else "EACH"
        with nested(body, inner, each) as counters:
            stage.write(body, (*outer, *counters))

    def _loops_within(self, stage: LoopStage) -> bool:
        body = Body(self.taken)
        stage.write(body, schedule.counters(stage, self.taken))
        return any("for (" in line for line in body.lines)

    def _states(self, body: Body, fold: Fold, count: str) -> list[str]:
        names = [body.name("s") for _ in fold.state]
        for name, (kind, _) in zip(names, fold.state, strict=True):
            held = "sum_t" if fold.wide and kind == "double" else kind
            body.say(f"{held} {name}[{count}];")
        with body.block(f"for (int64_t $u = 0; $u < {count}; ++$u)"):
            for name, (_, begin) in zip(names, fold.state, strict=True):
                body.say(f"{name}[$u] = {begin};")
        return names

    def _lanes(
        self, body: Body, stage: LoopStage, fold: Fold, index: Index, part: str = ""
    ) -> list[str]:
        """Neighbours into a state each, which are then put together; stored unless it is a
        ``part`` of all, which is the bounds of the first axis."""
        names = self._states(body, fold, "LANES")
        texts = list(map(self.lengths.text, fold.lengths)) or ["1"]
        bounds = [("0", text) for text in texts]
        if part:
            long = next((n for n, one in enumerate(fold.lengths) if one != 1), 0)
            bounds[long] = (
                f"{texts[long]} * {part} / PARTS",
                f"{texts[long]} * ({part} + 1) / PARTS",
            )
        counters: list[str] = []
        heads = []
        for low, high in bounds[:-1]:
            counters.append(body.name("r"))
            heads.append(
                f"for (int64_t {counters[-1]} = {low}; {counters[-1]} < {high}; ++{counters[-1]})"
            )

        def innermost() -> None:
            r, (low, high) = body.name("r"), bounds[-1]
            count = len(fold.lengths)
            body.say(f"int64_t {r} = {low};")
            with body.block(f"for (; {r} + LANES <= {high}; {r} += LANES)"):
                body.say("EACH")
                with body.block("for (int64_t $u = 0; $u < LANES; ++$u)"):
                    at = body.let("int64_t", f"{r} + $u")
                    fold.take(body, index, (*counters, at)[:count], [f"{n}[$u]" for n in names])
            with body.block(f"for (; {r} < {high}; ++{r})"):
                fold.take(body, index, (*counters, r)[:count], [f"{n}[0]" for n in names])

        source.within(body, heads, innermost)
        with body.block("for (int64_t $u = 1; $u < LANES; ++$u)"):
            for line in fold.join([f"{n}[0]" for n in names], [f"{n}[$u]" for n in names]):
                body.say(line)
        if not part:
            assert stage.store
            stage.store(body, index, fold.result([f"{n}[0]" for n in names]))
        return names

    def _across(self, body: Body, stage: LoopStage, fold: Fold, outer: Index) -> None:
        """Neighbours are elements of the output, which have a state each."""
        assert stage.store
        last = self.lengths.text(stage.shape[-1])
        body.say(f"const int64_t $width = {last} - $j0 < LANES ? {last} - $j0 : LANES;")
        names = self._states(body, fold, "LANES")
        with nested(body, list(map(self.lengths.text, fold.lengths))) as counters:
            body.say("EACH")
            with body.block("for (int64_t $u = 0; $u < $width; ++$u)"):
                at = body.let("int64_t", "$j0 + $u")
                fold.take(body, (*outer, at), tuple(counters), [f"{n}[$u]" for n in names])
        with body.block("for (int64_t $u = 0; $u < $width; ++$u)"):
            at = body.let("int64_t", "$j0 + $u")
            stage.store(body, (*outer, at), fold.result([f"{n}[$u]" for n in names]))

    def _parts(self, body: Body, stage: LoopStage) -> None:
        fold = stage.fold
        assert fold and stage.store
        index = ("0",) * len(stage.shape)
        with body.block(""):
            wholes = self._states(body, fold, "PARTS")
            count = self.lengths.count(fold.lengths)
            body.say(f"#pragma omp parallel for schedule(static) if ({count} >= PARALLEL_FROM)")
            with body.block("for (int64_t $part = 0; $part < PARTS; ++$part)"):
                names = self._lanes(body, stage, fold, index, part="$part")
                for whole, name in zip(wholes, names, strict=True):
                    body.say(f"{whole}[$part] = {name}[0];")
            with body.block("for (int64_t $u = 1; $u < PARTS; ++$u)"):
                for line in fold.join([f"{n}[0]" for n in wholes], [f"{n}[$u]" for n in wholes]):
                    body.say(line)
            stage.store(body, index, fold.result([f"{n}[0]" for n in wholes]))

    def _product(self, body: Body, group: Group) -> None:
        """Tiles of a chunk of rows by some columns, whose part of the right side is packed. Beyond
        the ends the last row and column stand in, and are not stored."""
        stage = group.stages[0]
        assert stage.product and stage.fold and stage.store
        a, b = stage.product.a, stage.product.b
        *_, m, n = (self.lengths.text(one) for one in stage.shape)
        depth = self.lengths.text(a.shape[-1])
        index = schedule.counters(stage, self.taken)[:-2]
        sum_t = "sum_t" if stage.fold.wide else stage.fold.state[0][0]
        heads = self._heads(stage.shape[:-2], index)
        heads += [
            f"for (int64_t $j0 = 0; $j0 < {n}; $j0 += TILE_COLS)",
            f"for (int64_t $c0 = 0; $c0 < {m}; $c0 += CHUNK)",
        ]
        count = self.lengths.count([*stage.shape, a.shape[-1]])
        body.say(f"#pragma omp parallel if ({count} >= PARALLEL_FROM)")

        def tiles() -> None:
            with body.block(f"for (int64_t $k = 0; $k < {depth}; ++$k)"):
                with body.block("for (int64_t $u = 0; $u < TILE_COLS; ++$u)"):
                    j = body.let("int64_t", f"$j0 + $u < {n} ? $j0 + $u : {n} - 1")
                    body.say(f"$panel[$k * TILE_COLS + $u] = {b.at(body, (*index, '$k', j))};")
            body.say(f"const int64_t $c1 = $c0 + CHUNK < {m} ? $c0 + CHUNK : {m};")
            with body.block("for (int64_t $row0 = $c0; $row0 < $c1; $row0 += TILE_ROWS)"):
                body.say(f"{sum_t} $acc[TILE_ROWS][TILE_COLS] = {{}};")
                with body.block(f"for (int64_t $k = 0; $k < {depth}; ++$k)"):
                    with body.block("for (int64_t $w = 0; $w < TILE_ROWS; ++$w)"):
                        i = body.let("int64_t", f"$row0 + $w < {m} ? $row0 + $w : {m} - 1")
                        left = body.let(f"{sum_t}", f"({sum_t}){a.at(body, (*index, i, '$k'))}")
                        body.say("EACH")
                        with body.block("for (int64_t $u = 0; $u < TILE_COLS; ++$u)"):
                            body.say(f"$acc[$w][$u] += {left} * $panel[$k * TILE_COLS + $u];")
                with body.block("for (int64_t $w = 0; $w < TILE_ROWS && $row0 + $w < $c1; ++$w)"):
                    with body.block(
                        f"for (int64_t $u = 0; $u < TILE_COLS && $j0 + $u < {n}; ++$u)"
                    ):
                        i, j = body.let("int64_t", "$row0 + $w"), body.let("int64_t", "$j0 + $u")
                        self._ended(body, group, (*index, i, j), f"({a.kind})$acc[$w][$u]")

        with body.block(""):
            body.lines += self._own(group)
            body.say(f"const std::unique_ptr<{b.kind}[]> $panel(")
            body.say(f"    new {b.kind}[{depth} > 0 ? {depth} * TILE_COLS : 1]);")
            body.say(f"#pragma omp for schedule(static) collapse({len(heads)})")
            source.within(body, heads, tiles)

    def _ended(self, body: Body, group: Group, index: Index, element: str) -> None:
        """Writes what is done with an element of a product once it is complete."""
        first, *others = group.stages
        assert first.store
        first.store(body, index, element)
        for stage in others:
            with body.block(""):
                stage.write(body, index)
