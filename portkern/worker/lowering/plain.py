"""The plain kernel of a PyTorch file's operator, in a backend's language."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch  # noqa: TID253 - imported where a graph is written, in a worker
from torch._decomp import (  # noqa: TID253
    core_aten_decompositions,
    get_decompositions,
)

from portkern.errors import ConfigError
from portkern.spec import abi, registry
from portkern.spec.from_torch.traced import Untraceable
from portkern.spec.op import CELL, Signature, TensorSpec
from portkern.worker.lowering import schedule
from portkern.worker.lowering import source as sources
from portkern.worker.lowering.block_kernels import RESERVED
from portkern.worker.lowering.graph import Given, Graph
from portkern.worker.lowering.lengths import Lengths
from portkern.worker.lowering.opencl_source import OpenclSource
from portkern.worker.lowering.operations import Unwritable
from portkern.worker.lowering.pallas_source import PallasSource
from portkern.worker.lowering.readings import Reading
from portkern.worker.lowering.source import Interface
from portkern.worker.lowering.stages import Loops
from portkern.worker.lowering.traces import Traces
from portkern.worker.lowering.triton_source import TritonSource
from portkern.worker.lowering.tuned_cpp import TunedCpp
from portkern.worker.lowering.tuned_gpu import TunedGpu
from portkern.worker.tracing.trace import TracedGraph

aten = torch.ops.aten
#: What is made of parts beyond those that a core graph is made of already.
_PARTED = """
    native_batch_norm _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _batch_norm_with_update
    _softmax _log_softmax logsumexp var_mean std std_mean addmm baddbmm addmv
    gelu silu mish elu celu selu leaky_relu prelu softplus hardsigmoid hardswish hardtanh_
    softshrink hardshrink threshold log_sigmoid_forward logit glu rrelu_with_noise
    mse_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy nll_loss_forward
    linalg_vector_norm norm dot mv addcmul addcdiv lerp
    _adaptive_avg_pool2d adaptive_avg_pool1d upsample_nearest2d upsample_bilinear2d
    upsample_nearest1d upsample_nearest3d pixel_shuffle pixel_unshuffle
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d im2col col2im masked_fill tril triu trace logaddexp xlogy
    _scaled_dot_product_flash_attention_for_cpu rsub fill new_full new_zeros new_ones
    index_add unfold_copy diag_embed hypot sinc deg2rad rad2deg roll stack square
    """.split()
_POINTER = re.compile(r"((?:const )?\w+)\* ?(\w+)")


def written(
    traced: TracedGraph, signature: Signature, backend: str, language: str
) -> tuple[str, ...]:
    """The plain kernel, then those that share and tile the same loops and have knobs for it. Raises
    Unwritable for what has no plain form."""
    expected = (
        {tensor.name for tensor in signature.inputs},
        [tensor.name for tensor in signature.outputs],
        {scalar.name for scalar in signature.scalars},
    )
    own = ({*traced.inputs.values()}, [*traced.outputs], {*traced.retracing.scalars})
    if own != expected:
        raise Unwritable("names that the sheet has otherwise than the file")
    symbols = traced.retracing.symbols
    names = {**traced.axes, **{symbol: name for name, symbol in symbols.items()}}
    lengths = Lengths(names, traced.known)
    readings, constants = Traces.of(traced, lengths, _table()).merged()
    write = _in_python if language in _PYTHON else _in_c
    try:
        return write(
            _Asked(readings, constants, lengths, traced.inputs, signature), backend, language
        )
    except ConfigError as error:
        raise Unwritable(f"a length that is not arithmetic over axes ({error})") from error


@dataclass(frozen=True)
class _Asked:
    readings: Sequence[Reading]
    constants: Mapping[str, torch.Tensor]
    lengths: Lengths
    inputs: Mapping[str, str]
    signature: Signature

    def loops(
        self,
        outputs: Sequence[tuple[str, str]],
        taken: frozenset[str],
        cells: frozenset[str] = frozenset(),
    ) -> Loops:
        """``outputs``: with what each is stored as."""
        parts = (self.readings, self.constants, self.lengths, self.inputs)
        return Graph(Given(*parts, outputs, taken, cells)).written()


def _in_c(asked: _Asked, backend: str, language: str) -> tuple[str, ...]:
    signature, lengths = asked.signature, asked.lengths
    declared = registry.load(backend).declaration(signature, language)
    types = {name: kind for kind, name in _POINTER.findall(declared)}
    interface = _interface(signature, declared)
    outputs = [(tensor.name, types[tensor.name]) for tensor in signature.outputs]
    loops = asked.loops(outputs, interface.taken)
    gpu = language in ("cuda", "hip")
    write = sources.gpu if gpu else sources.cpp
    plain = write(loops, lengths, interface, _head(signature))
    tuned = TunedGpu(loops, lengths, interface) if gpu else TunedCpp(loops, lengths, interface)
    several = (schedule.fused(loops, interface.taken), schedule.alone(loops))
    made = [tuned.written(groups, _tuned_head(signature)) for groups in several]
    return tuple(dict.fromkeys((plain, *made)))


#: What writes a file of a language from loops.
_PYTHON: Mapping[str, type[OpenclSource | PallasSource | TritonSource]] = {
    "opencl": OpenclSource,
    "pallas": PallasSource,
    "triton": TritonSource,
}


def _in_python(asked: _Asked, backend: str, language: str) -> tuple[str, ...]:
    signature = asked.signature
    tensors = (*signature.inputs, *signature.outputs)
    cells = frozenset(t.name for t in tensors if t.dtype == CELL and language == "opencl")
    numbers = (*signature.axes, *(scalar.name for scalar in signature.scalars))
    outputs = [(tensor.name, _stored_as(tensor)) for tensor in signature.outputs]
    taken = frozenset({*(tensor.name for tensor in tensors), *numbers, *RESERVED})
    loops = asked.loops(outputs, taken, cells)
    source = _PYTHON[language](loops, asked.lengths, signature)
    return (source.written(f"{signature.name}, written from its graph."),)


def _stored_as(tensor: TensorSpec) -> str:
    if tensor.dtype == CELL or tensor.dtype.startswith(("float", "bfloat")):
        return "(double)" if tensor.dtype == "float64" else "(float)"
    return "(bool)" if tensor.dtype == "bool" else "(int64_t)"


def _table() -> dict[object, object]:
    packets = [getattr(aten, name) for name in _PARTED if hasattr(aten, name)]
    return {**core_aten_decompositions(), **get_decompositions(packets)}


def _interface(signature: Signature, declared: str) -> Interface:
    apart = abi.passes_structures(signature)
    tensors = {tensor.name for tensor in (*signature.inputs, *signature.outputs)}
    inputs = {tensor.name for tensor in signature.inputs}
    pointers = [
        (kind, name, f"{'in' if name in inputs else 'out'}->{name}" if apart else name)
        for kind, name in _POINTER.findall(declared)
        if name in tensors
    ]
    numbers = [("int64_t", axis, f"axes->{axis}" if apart else axis) for axis in signature.axes]
    numbers += [(abi.C_SCALARS[one.dtype], one.name, one.name) for one in signature.scalars]
    return Interface(declared.splitlines()[-1].rstrip(";"), pointers, numbers)


def _tuned_head(signature: Signature) -> str:
    return f"// {signature.name}, written from its graph: its loops with knobs that say how.\n"


def _head(signature: Signature) -> str:
    cells = "scalar_t" if any(t.dtype == CELL for t in signature.inputs) else "elements"
    return (
        f"// {signature.name}, written from its graph operation by operation: {cells} are\n"
        "// computed as float, sums as double. Right at once; where a faster kernel begins.\n"
    )


__all__ = ["Untraceable", "Unwritable", "written"]
