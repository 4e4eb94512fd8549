"""Loops as a Triton file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from portkern.worker.lowering import python_source as source
from portkern.worker.lowering.block_kernels import BlockKernel, BlockKernels
from portkern.worker.lowering.body import Kind
from portkern.worker.lowering.lanes import LoweredLanes, Spread
from portkern.worker.lowering.triton_lanes import HELPERS, NEEDS, TritonLanes

_TORCH = {"bool": "torch.bool", "int64_t": "torch.int64", "float": "torch.float32"} | {
    "double": "torch.float64"
}


class TritonSource(BlockKernels):
    arrays = "tl"
    program = "tl.program_id(0).to(tl.int64)"
    axis_spread: Spread = "scalar"
    has_barriers = True

    def lanes(self, registers: Mapping[str, Kind]) -> LoweredLanes:
        return TritonLanes({}, self.pointers, registers)

    def prologue(self, lanes: LoweredLanes, how: str) -> None:
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

    def barrier(self, lanes: LoweredLanes) -> None:
        lanes.say("tl.debug_barrier()  # lanes read what others have stored")

    # ---- tiles

    def zeros(self, shape: str) -> str:
        return f"tl.zeros({shape}, tl.int64)"

    def span(self, length: str) -> str:
        return f"tl.arange(0, {length})"

    def tiles(self, length: str, block: str) -> str:
        return f"tl.cdiv({length}, {block})"

    def steps(self, depth: str) -> str:
        return f"tl.cdiv({depth}, BLOCK_K)"

    def multiply(self, lanes: LoweredLanes) -> None:
        lanes.say('total = tl.dot(left, right, total, input_precision="ieee")')

    # ---- the file

    def written(self, head: str) -> str:
        kernels = self.kernels()
        parts = [f'"""{head}"""\n', "import torch\nimport triton\nimport triton.language as tl\n"]
        parts += [source.knobs(kernels) + "\n"]
        parts += source.helpers(kernels, HELPERS, NEEDS)
        parts += [self._function(kernel) for kernel in kernels]
        return "\n".join([*parts, self._host(kernels)])

    def _function(self, kernel: BlockKernel) -> str:
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

    def _host(self, kernels: Sequence[BlockKernel]) -> str:
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

    def _launch(self, kernel: BlockKernel) -> Iterator[str]:
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
    """Numbers as C has them."""
    lanes = TritonLanes({}, {}, {})
    return ", ".join(
        lanes.number(value).text.replace('float("', "float('").replace('")', "')")
        for value in values
    )
