"""Loops as a Pallas file: tensors are flat there, and elements are read and written by place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import sympy

from portkern.spec.op import CELL
from portkern.worker.lowering import python_source as source
from portkern.worker.lowering.block_kernels import BlockKernel, BlockKernels
from portkern.worker.lowering.body import Kind
from portkern.worker.lowering.jax_lanes import DTYPES, HELPERS, NEEDS, JaxLanes
from portkern.worker.lowering.lanes import LoweredLanes, Spread

_IMPORTS = """\
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt
"""
_CALL = '''\
def _shapes(outputs):
    """Of lengths and dtypes."""
    return [jax.ShapeDtypeStruct((max(n, 1),), dtype) for n, dtype in outputs]


def _flat(x):
    """At least one element, which no program reads."""
    return x.reshape(-1) if x.size else jnp.zeros((1,), x.dtype)


'''


class PallasSource(BlockKernels):
    arrays = "jnp"
    program = "pl.program_id(0)"
    axis_spread: Spread = "number"
    has_barriers = False  # JAX's interpreter knows none

    def lanes(self, registers: Mapping[str, Kind]) -> LoweredLanes:
        return JaxLanes({}, self.pointers, registers)

    def prologue(self, lanes: LoweredLanes, how: str) -> None:
        if how == "flat":
            lanes.say("zero = jnp.zeros((BLOCK,), jnp.int32)")
            lanes.say("row = pl.program_id(0) * BLOCK + jnp.arange(BLOCK)")
        else:
            lanes.shape = "(ROWS, BLOCK)"
            lanes.say("zero = jnp.zeros((ROWS, BLOCK), jnp.int32)")
            lanes.say("row = pl.program_id(0) * ROWS + jnp.arange(ROWS)[:, None] + zero")
            lanes.say("col = jnp.arange(BLOCK)[None, :] + zero")
        lanes.say("live = row < total")

    def barrier(self, lanes: LoweredLanes) -> None:
        raise AssertionError("lanes that read what others have stored")

    # ---- tiles

    def zeros(self, shape: str) -> str:
        return f"jnp.zeros({shape}, jnp.int32)"

    def span(self, length: str) -> str:
        return f"jnp.arange({length})"

    def tiles(self, length: str, block: str) -> str:
        return f"max(pl.cdiv({length}, {block}), 1)"

    def steps(self, depth: str) -> str:
        return f"pl.cdiv({depth}, BLOCK_K)"

    def multiply(self, lanes: LoweredLanes) -> None:
        lanes.say("highest = jax.lax.Precision.HIGHEST")
        lanes.say(
            "total += jnp.dot(left, right, precision=highest, preferred_element_type=jnp.float32)"
        )

    # ---- the file

    def written(self, head: str) -> str:
        kernels = self.kernels()
        parts = [f'"""{head}"""\n', _IMPORTS, source.knobs(kernels) + "\n"]
        parts += source.helpers(kernels, HELPERS, NEEDS)
        parts += [self._function(kernel) for kernel in kernels]
        return "\n".join([*parts, _CALL + self._host(kernels)])

    def _function(self, kernel: BlockKernel) -> str:
        own = {"flat": ["total", "BLOCK"], "rows": ["total", "ROWS", "BLOCK"]}.get(kernel.how, [])
        numbers = [name for name in kernel.given if name in self.numbers]
        named = ", ".join([*numbers, *own])
        parameters = ", ".join([*self._read(kernel), *kernel.written])
        parameters += f", *, {named}" if named else ""
        return "\n".join([f"def {kernel.name}({parameters}):", *kernel.lines, "", ""])

    def _read(self, kernel: BlockKernel) -> list[str]:
        known = {*self.numbers, *kernel.written}
        return [name for name in kernel.given if name not in known]

    def _host(self, kernels: Sequence[BlockKernel]) -> str:
        signature = self.signature
        inputs = [tensor.name for tensor in signature.inputs]
        scalars = [scalar.name for scalar in signature.scalars]
        begin = [f"    {name}_ = _flat({name})" for name in inputs]
        lanes = JaxLanes({}, {}, {})
        begin += [
            f"    {name}_ = jnp.array([{', '.join(lanes.number(v).text for v in values)}], "
            f"{DTYPES[kind]})"
            for name, (kind, values) in self.loops.constants.items()
        ]
        lines = [line for kernel in kernels for line in self._launch(kernel)]
        returned = []
        for tensor in signature.outputs:
            shape = "".join(
                f"{self.on_host(self.lengths.text(n))}, " for n in self._shape(tensor.name)
            )
            returned.append(f"{tensor.name}_[: {self._count(tensor.name)}].reshape(({shape}))")
        lines.append(f"    return {', '.join(returned)}")
        axes = source.axes(signature, lines, inputs)
        taken = ", ".join([*inputs, "*", *scalars, "interpret=False"])
        return "\n".join([f"def {signature.name}({taken}):", *axes, *begin, *lines, ""])

    def _launch(self, kernel: BlockKernel) -> Iterator[str]:
        counts = kernel.counts
        fixed = [f"{name}={name}" for name in kernel.given if name in self.numbers]
        programs = (
            f"{counts.get('batches')} * pl.cdiv({counts.get('m')}, BLOCK_M) "
            f"* pl.cdiv({counts.get('n')}, BLOCK_N)"
        )
        if kernel.how == "flat":
            yield f"    block = min(BLOCK, pl.next_power_of_2(max({counts['total']}, 1)))"
            programs = f"pl.cdiv({counts['total']}, block)"
            fixed += [f"total={counts['total']}", "BLOCK=block"]
        elif kernel.how == "rows":
            yield f"    block = min(BLOCK, pl.next_power_of_2(max({counts['longest']}, 1)))"
            yield "    rows_ = max(1, TILE // block)"
            programs = f"pl.cdiv({counts['total']}, rows_)"
            fixed += [f"total={counts['total']}", "ROWS=rows_", "BLOCK=block"]
        outputs = ", ".join(
            f"({self._count(name)}, {self._dtype(name)})" for name in kernel.written
        )
        targets = ", ".join(f"{name}_" for name in kernel.written)
        inputs = ", ".join(f"{name}_" for name in self._read(kernel))
        bound = f"partial({kernel.name}, {', '.join(fixed)})" if fixed else kernel.name
        # Where nothing is to be done a program has no lane that does anything.
        yield f"    [{targets}] = pl.pallas_call("
        yield f"        {bound},"
        yield f"        grid=(max({programs}, 1),),"
        yield f"        out_shape=_shapes([{outputs}]),"
        yield "        compiler_params=plt.CompilerParams(num_warps=NUM_WARPS),"
        yield "        interpret=interpret,"
        yield f"    )({inputs})"

    def _count(self, name: str) -> str:
        return self.on_host(self.lengths.count(self._shape(name)))

    def _shape(self, name: str) -> Sequence[sympy.Expr]:
        """The shape of a buffer or an output, over the axes of inputs."""
        shapes = {stage.buffer: stage.shape for stage in self.loops.stages}
        return {**shapes, **{buffer.name: buffer.shape for buffer in self.loops.buffers}}[name]

    def _dtype(self, name: str) -> str:
        for tensor in self.signature.outputs:
            if tensor.name == name and tensor.dtype == CELL:
                return next(f"{t.name}.dtype" for t in self.signature.inputs if t.dtype == CELL)
            if tensor.name == name and self.pointers[name] == "float":
                return f"jnp.{tensor.dtype}"
        return DTYPES[self.pointers[name]]
