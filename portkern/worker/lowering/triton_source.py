"""Loops as a Triton file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from portkern.worker.lowering import python_source as source
from portkern.worker.lowering.block_kernels import BlockKernels, Kernel
from portkern.worker.lowering.body import Kind
from portkern.worker.lowering.lanes import Lanes, Spread, Term
from portkern.worker.lowering.triton_lanes import HELPERS, NEEDS, TritonLanes

_TORCH = {"bool": "torch.bool", "int64_t": "torch.int64", "float": "torch.float32"} | {
    "double": "torch.float64"
}
_SIDES = {
    "left": ("(BLOCK_M, BLOCK_K)", "row", "row0 + tl.arange(0, BLOCK_M)[:, None]", "[None, :]"),
    "right": ("(BLOCK_K, BLOCK_N)", "col", "col0 + tl.arange(0, BLOCK_N)[None, :]", "[:, None]"),
}


class TritonSource(BlockKernels):
    axis_spread: Spread = "scalar"
    has_barriers = True

    def lanes(self, registers: Mapping[str, Kind]) -> Lanes:
        return TritonLanes({}, self.pointers, registers)

    def prologue(self, lanes: Lanes, how: str) -> None:
        if how == "flat":
            lanes.say("zero = tl.zeros((BLOCK,), tl.int64)")
            lanes.say("row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
        else:
            lanes.shape = "(ROWS, BLOCK)"
            lanes.say("zero = tl.zeros((ROWS, BLOCK), tl.int64)")
            lanes.say("row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]")
            lanes.say("row += zero")
            lanes.say("col = tl.arange(0, BLOCK)[None, :] + zero")
        lanes.say("live = row < total")

    def barrier(self, lanes: Lanes) -> None:
        lanes.say("tl.debug_barrier()  # lanes read what others have stored")

    # ---- tiles

    def tile_begin(self, lanes: Lanes, lengths: Mapping[str, str]) -> None:
        lanes.say(f"tiles_n = tl.cdiv({lengths['n']}, BLOCK_N)")
        lanes.say(f"tiles_m = tl.cdiv({lengths['m']}, BLOCK_M)")
        lanes.say("tile = tl.program_id(0).to(tl.int64)")
        lanes.say("col0 = tile % tiles_n * BLOCK_N")
        lanes.say("row0 = tile // tiles_n % tiles_m * BLOCK_M")
        lanes.say("tile = tile // (tiles_n * tiles_m)")
        lanes.say("total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")

    def steps(self, depth: str) -> str:
        return f"tl.cdiv({depth}, BLOCK_K)"

    def side_begin(self, lanes: Lanes, side: str, lengths: Mapping[str, str]) -> None:
        shape, axis, places, depth = _SIDES[side]
        lanes.shape, lanes.zero, lanes.mask = shape, f"zero_{side}", f"live_{side}"
        lanes.say(f"zero_{side} = tl.zeros({shape}, tl.int64)")
        lanes.say(f"{axis} = {places} + zero_{side}")
        lanes.say(f"depth = step * BLOCK_K + tl.arange(0, BLOCK_K){depth} + zero_{side}")
        length = lengths["m" if axis == "row" else "n"]
        lanes.say(f"live_{side} = ({axis} < {length}) & (depth < {lengths['k']})")

    def side_end(self, lanes: Lanes, side: str, element: Term) -> None:
        lanes.say(f"{side} = tl.where(live_{side}, {lanes.full(element)}, 0.0)")

    def multiply(self, lanes: Lanes) -> None:
        lanes.say('total = tl.dot(left, right, total, input_precision="ieee")')

    def tile_end(self, lanes: Lanes, lengths: Mapping[str, str]) -> None:
        lanes.shape, lanes.zero, lanes.mask = "(BLOCK_M, BLOCK_N)", "zero", "live"
        lanes.say("zero = tl.zeros((BLOCK_M, BLOCK_N), tl.int64)")
        lanes.say("row = row0 + tl.arange(0, BLOCK_M)[:, None] + zero")
        lanes.say("col = col0 + tl.arange(0, BLOCK_N)[None, :] + zero")
        lanes.say(f"live = (row < {lengths['m']}) & (col < {lengths['n']})")

    # ---- the file

    def written(self, head: str) -> str:
        kernels = self.kernels()
        parts = [f'"""{head}"""\n', "import torch\nimport triton\nimport triton.language as tl\n"]
        parts += [source.knobs(kernels) + "\n"]
        parts += source.helpers(kernels, HELPERS, NEEDS)
        parts += [self._function(kernel) for kernel in kernels]
        return "\n".join([*parts, self._host(kernels)])

    def _function(self, kernel: Kernel) -> str:
        own = {"flat": ("BLOCK",), "rows": ("ROWS", "BLOCK")}.get(
            kernel.how, ("BLOCK_M", "BLOCK_N", "BLOCK_K")
        )
        given = [
            f"{name}: tl.int64" if name in self.signature.axes else name for name in kernel.given
        ]
        given += ["total: tl.int64"] if kernel.how != "tiles" else []
        parameters = ", ".join([*given, *(f"{name}: tl.constexpr" for name in own)])
        return "\n".join(
            ["@triton.jit", f"def {kernel.name}({parameters}):", *kernel.lines, "", ""]
        )

    def _host(self, kernels: Sequence[Kernel]) -> str:
        signature = self.signature
        tensors = [tensor.name for tensor in (*signature.inputs, *signature.outputs)]
        scalars = ["*", *(scalar.name for scalar in signature.scalars)]
        taken = ", ".join([*tensors, *(scalars if signature.scalars else ())])
        lines = [line for kernel in kernels for line in self._launch(kernel)]
        device = f"device={tensors[0]}.device"
        begin = [
            f"    {name} = torch.tensor([{_numbers(values)}], dtype={_TORCH[kind]}, {device})"
            for name, (kind, values) in self.loops.constants.items()
        ]
        begin += [
            f"    {buffer.name} = torch.empty(max({count}, 1), "
            f"dtype={_TORCH[buffer.kind]}, {device})"
            for buffer in self.scratch
            if (count := self.on_host(self.lengths.count(buffer.shape)))
        ]
        axes = source.axes(signature, [*lines, *begin], tensors)
        return "\n".join([f"def {signature.name}({taken}):", *axes, *begin, *lines, ""])

    def _launch(self, kernel: Kernel) -> Iterator[str]:
        given, counts = ", ".join(kernel.given), kernel.counts
        if kernel.how == "tiles":
            grid = (
                f"{counts['batches']} * triton.cdiv({counts['m']}, BLOCK_M) "
                f"* triton.cdiv({counts['n']}, BLOCK_N)"
            )
            yield f"    if {counts['batches']} * {counts['m']} * {counts['n']} > 0:"
            yield f"        {kernel.name}[({grid},)]("
            yield f"            {given}, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,"
            yield "            num_warps=NUM_WARPS,"
            yield "        )"
            return
        total = counts["total"]
        yield f"    if {total} > 0:"
        if kernel.how == "flat":
            yield f"        block = min(BLOCK, triton.next_power_of_2({total}))"
            grid, own = f"triton.cdiv({total}, block)", "BLOCK=block"
        else:
            yield f"        block = min(BLOCK, triton.next_power_of_2(max({counts['longest']}, 1)))"
            yield "        rows_ = max(1, TILE // block)"
            grid, own = f"triton.cdiv({total}, rows_)", "ROWS=rows_, BLOCK=block"
        yield f"        {kernel.name}[({grid},)]({given}, {total}, {own}, num_warps=NUM_WARPS)"


def _numbers(values: Sequence[str]) -> str:
    """As C has them."""
    lanes = TritonLanes({}, {}, {})
    return ", ".join(
        lanes.number(value).text.replace('float("', "float('").replace('")', "')")
        for value in values
    )
