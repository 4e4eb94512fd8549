"""Which ops are alike: what helped one of a family may help the others."""

from __future__ import annotations

from portkern.spec.op import Op

#: The length of every axis where ops are compared.
_LENGTH = 64


def family(op: Op) -> str:
    """contraction, reduction, indexed or elementwise, from what the op says of itself; one that
    says nothing is a family of its own."""
    dims = dict.fromkeys(op.signature.axes, _LENGTH)
    tensors = (*op.signature.inputs, *op.signature.outputs)
    elements = sum(tensor.nbytes(dims, "int8") for tensor in tensors)
    if op.flops(dims) > 16 * elements:
        return "contraction"
    if op.terms is not None and op.terms(dims) > 8:
        return "reduction"
    if any(tensor.within for tensor in op.signature.inputs):
        return "indexed"
    kept = {axis for tensor in op.signature.outputs for axis in tensor.shape}
    if any(set(tensor.shape) - kept for tensor in op.signature.inputs):
        return "reduction"
    return "elementwise" if op.flops(dims) else op.name
