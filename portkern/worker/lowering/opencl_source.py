"""Loops as OpenCL C with who enqueues them: a work-item for each element, which goes over what it
sums up. What is done to the same element is done by one kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from portkern.spec.op import CELL, Signature, TensorSpec
from portkern.worker.lowering import schedule, source
from portkern.worker.lowering.body import Body, free
from portkern.worker.lowering.jax_lanes import JaxLanes
from portkern.worker.lowering.lanes import Term
from portkern.worker.lowering.lengths import Lengths
from portkern.worker.lowering.operations import Unwritable
from portkern.worker.lowering.schedule import Group
from portkern.worker.lowering.stages import Loops, StageBuffer

_NAME = re.compile(r"[A-Za-z_]\w*")
_KEYWORDS = frozenset(
    "kernel global local constant private half queue program cl WG SOURCE row groups".split()
)
#: Functions of floats as C has them; OpenCL's have one name for all types.
_OF_FLOATS = (
    "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh "
    "acosh atanh erf erfc floor ceil trunc lgamma rint pow atan2 copysign fmax fmin fmod"
).split()
_TYPES = {"bool": "char", "int8": "char", "uint8": "uchar", "int32": "int", "int64": "long"} | {
    "float64": "double",
    "float32": "float",
}
_KINDS = {"bool": "char", "int64_t": "long", "float": "float", "double": "double"}
_BYTES = {"bool": 1, "int64_t": 8, "float": 4, "double": 8}
_HEAD = """\
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#else
#define double float
#endif
typedef long int64_t;
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
"""


class OpenclSource:
    def __init__(self, loops: Loops, lengths: Lengths, signature: Signature) -> None:
        self.loops, self.lengths, self.signature = loops, lengths, signature
        tensors = (*signature.inputs, *signature.outputs)
        self.numbers = dict.fromkeys(signature.axes, "long")
        self.numbers |= {
            scalar.name: {"float32": "float", "int64": "long"}.get(scalar.dtype, "char")
            for scalar in signature.scalars
        }
        self.taken = frozenset({*self.numbers, *(tensor.name for tensor in tensors)})
        for name in sorted(self.taken & _KEYWORDS):
            raise Unwritable(f"a tensor or axis called {name}, which OpenCL calls something else")
        inputs = {tensor.name for tensor in signature.inputs}
        self.pointers = {
            tensor.name: f"global {'const ' if tensor.name in inputs else ''}{_type(tensor)}*"
            for tensor in tensors
        }
        self.pointers |= {b.name: f"global {_KINDS[b.kind]}*" for b in loops.buffers}

    def written(self, head: str) -> str:
        groups = [part for one in schedule.fused(self.loops, self.taken) for part in _parts(one)]
        self.loops.own = {
            name: rows
            for name, rows in schedule.private(groups, self.loops, self.taken).items()
            if any(len(g.stages) > 1 for g in groups for s in g.stages if s.buffer == name)
        }
        kernels, launches = zip(
            *(self._kernel(n, group) for n, group in enumerate(groups)), strict=True
        )
        scratch = [buffer for buffer in self.loops.buffers if buffer.name not in self.loops.own]
        self.loops.own = {}
        arrays = [source.array("constant", *one) for one in source.constants(self.loops)]
        text = "\n".join([*arrays, *kernels])
        used = [name for name in _OF_FLOATS if re.search(rf"\b{name}f\(", text)]
        head_c = _HEAD + "".join(f"#define {name}f {name}\n" for name in used)
        host = [line for launch in launches for line in launch]
        return "\n".join(
            [
                f'"""{head}"""\n',
                *(["import pyopencl as cl\n"] if scratch else []),
                "WG = 64  # knob: 1 16 64 128 256\n",
                f'SOURCE = r"""\n{head_c}\n{text}"""\n\n',
                self._prototype(),
                *self._allocated(scratch),
                *host,
                "",
            ]
        )

    def _kernel(self, number: int, group: Group) -> tuple[str, list[str]]:
        name = free(f"group{number}", self.taken)
        shape = group.stages[0].shape
        total = self.lengths.count(shape)
        body = Body(self.taken | _KEYWORDS)
        for buffer in self.loops.buffers:
            if buffer.name in self.loops.own and any(s.buffer == buffer.name for s in group.stages):
                body.say(f"{buffer.kind} {buffer.name}[1];")
        index = self.lengths.split(body, "row", shape)
        for stage in group.stages:
            with body.block(""):
                stage.write(body, index)
        lines = [line for line in body.lines if "#pragma" not in line]
        known = {**self.pointers, **self.numbers}
        used = set(_NAME.findall("\n".join([*lines, total])))
        given = [one for one in known if one in used and one not in self.loops.own]
        parameters = ", ".join(f"{known[one]} {one}" for one in given)
        text = [
            f"kernel void {name}({parameters}) {{",
            "  const long row = get_global_id(0);",
            f"  if (row >= {total}) return;",
            *lines,
            "}",
            "",
        ]
        count = self._on_host(total)
        launch = [
            f"    if {count} > 0:",
            f"        groups = -(-{count} // WG)",
            f"        program.{name}(queue, (groups * WG,), (WG,), {', '.join(given)})",
        ]
        return "\n".join(text), launch

    def _prototype(self) -> str:
        tensors = [t.name for t in (*self.signature.inputs, *self.signature.outputs)]
        taken = ["queue", "program", *tensors, "*", *self.numbers]
        return f"def {self.signature.name}({', '.join(taken)}):"

    def _allocated(self, buffers: Sequence[StageBuffer]) -> Iterator[str]:
        for buffer in buffers:
            count = self._on_host(self.lengths.count(buffer.shape))
            size = f"int(max({count}, 1)) * {_BYTES[buffer.kind]}"
            yield f"    {buffer.name} = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, {size})"

    def _on_host(self, text: str) -> str:
        lanes = JaxLanes({name: Term(name, "int64_t", "number") for name in self.numbers}, {}, {})
        return lanes.number(text).text


def _type(tensor: TensorSpec) -> str:
    if tensor.dtype == CELL:
        return "storage_t"
    if tensor.dtype not in _TYPES:
        raise Unwritable(f"tensors of {tensor.dtype}")
    return _TYPES[tensor.dtype]


def _parts(group: Group) -> list[Group]:
    """The group as it is where each row is an element, else its stages one by one."""
    if group.whole:
        return [group]
    return [Group([stage], len(stage.shape)) for stage in group.stages]
