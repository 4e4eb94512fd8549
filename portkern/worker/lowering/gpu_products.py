"""Products of matrices on a GPU: tiles in shared memory, some elements of them for each thread."""

from __future__ import annotations

from collections.abc import Callable

from portkern.worker.lowering.body import Body, Index
from portkern.worker.lowering.gpu_kernels import GpuKernels
from portkern.worker.lowering.schedule import Group


class GpuProducts(GpuKernels):
    """A kernel with its launch."""

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
