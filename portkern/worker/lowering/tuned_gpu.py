"""Loops as CUDA and HIP with knobs: teams of threads for rows, tiles in shared memory for products,
several elements per thread for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from portkern.worker.lowering import schedule, source
from portkern.worker.lowering.body import Body, free
from portkern.worker.lowering.gpu_folds import GpuFolds
from portkern.worker.lowering.gpu_products import GpuProducts
from portkern.worker.lowering.schedule import Group

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


class TunedGpu(GpuFolds, GpuProducts):
    """Writes one kernel for each group of loops."""

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
        """Whether a fold has few outputs as far as its shape tells: it is of a whole, or of
        columns."""
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
