"""Reductions on a GPU: a team of threads for a row, or parts of what is gone over by blocks."""

from __future__ import annotations

from collections.abc import Sequence

from portkern.worker.lowering import source
from portkern.worker.lowering.body import Body, Fold, Index
from portkern.worker.lowering.gpu_kernels import GpuKernels
from portkern.worker.lowering.schedule import Group
from portkern.worker.lowering.stages import LoopStage


class GpuFolds(GpuKernels):
    """Kernels with their launches."""

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

    def _stage(self, body: Body, stage: LoopStage, outer: Index, shared: dict[str, str]) -> None:
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
        self, body: Body, stage: LoopStage, fold: Fold, index: Index, shared: dict[str, str]
    ) -> None:
        """Writes a fold: each thread's elements, then halves of the team put together."""
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

    def _split(self, name: str, stage: LoopStage) -> tuple[str, list[str]]:
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
        self, stage: LoopStage, fold: Fold, scratch: Sequence[str], outputs: str
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

    def _in_teams(
        self, stage: LoopStage, fold: Fold, scratch: Sequence[str]
    ) -> tuple[list[str], str]:
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


def _room(kind: str, name: str, count: str) -> list[str]:
    """The lines that make room for a state of each part and output."""
    return [
        f"  {kind}* {name} = nullptr;",
        f"  if (const cudaError_t wrong = cudaMallocAsync((void**)&{name},",
        f"          (({count}) > 0 ? ({count}) * PARTS : 1) * sizeof({kind}), stream))",
        "    return (int)wrong;",
    ]
