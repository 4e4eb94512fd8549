"""The Op model: what it refuses, what it counts, and that every shipped op is coherent."""

from __future__ import annotations

import pytest
import torch

from portkern import ops
from portkern.errors import ConfigError
from portkern.op import FLOATS, Op, ScalarSpec, Signature, TensorSpec, Workload


def moments() -> Op:
    """An op with two outputs and a scalar."""

    def run(x: torch.Tensor, correction: int) -> tuple[torch.Tensor, torch.Tensor]:
        return x.mean(-1), x.var(-1, correction=correction)

    signature = Signature(
        "moments", ("rows", "cols"), (TensorSpec("x", ("rows", "cols")),),
        (TensorSpec("mean", ("rows",)), TensorSpec("var", ("rows",))),
        (ScalarSpec("correction", "int64", 1),),
    )  # fmt: skip
    work = Workload("4x8", {"rows": 4, "cols": 8}, {"correction": 0})
    return Op(
        signature, run, flops=lambda d: 3.0 * d["rows"] * d["cols"], workloads={"ci": (work,)}
    )


def test_a_signature_survives_json() -> None:
    signature = moments().signature
    assert Signature.from_json(signature.to_json()) == signature


def test_an_axis_that_no_tensor_uses_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"declares the axes \['m', 'n'\], its tensors use \['n'\]"
    ):
        Signature("f", ("m", "n"), (TensorSpec("x", ("n",)),), (TensorSpec("y", ("n",)),))


def test_a_name_used_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="uses the name 'x' more than once"):
        Signature("f", ("n",), (TensorSpec("x", ("n",)),), (TensorSpec("x", ("n",)),))


def test_a_workload_must_give_every_axis_a_length() -> None:
    with pytest.raises(ConfigError, match=r"has the axes \['rows'\], expected \['cols', 'rows'\]"):
        moments().check(Workload("w", {"rows": 1}))


def test_an_unknown_scalar_is_answered_with_the_closest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'correction'"):
        moments().check(Workload("w", {"rows": 1, "cols": 2}, {"corection": 1}))


def test_bytes_count_each_tensor_once_at_the_cells_dtype() -> None:
    dims = {"rows": 4, "cols": 8}
    assert moments().nbytes(dims, "float32") == (32 + 4 + 4) * 4
    assert moments().nbytes(dims, "bfloat16") == (32 + 4 + 4) * 2


def test_the_digest_follows_the_reference_and_not_the_workloads() -> None:
    one, other = moments(), moments()
    assert one.digest == other.digest
    changed = Op(one.signature, one.reference, one.flops, {}, reference_source="def run(x): ...")
    assert changed.digest != one.digest


def test_an_unknown_op_is_answered_with_the_closest() -> None:
    with pytest.raises(ConfigError, match="No op 'sofmax'; did you mean 'softmax'"):
        ops.load("sofmax")


@pytest.mark.parametrize("name", ops.names())
def test_a_shipped_op_computes_its_declared_shapes_at_every_dtype(name: str) -> None:
    op = ops.load(name)
    work = op.workloads["ci"][0]
    for dtype in (*FLOATS, "float64"):
        inputs = [
            torch.randn(t.sizes(work.dims)).to(getattr(torch, dtype)) for t in op.signature.inputs
        ]
        output = op.reference(*inputs, **op.signature.scalar_values(work.scalars))
        assert output.shape == op.signature.outputs[0].sizes(work.dims)
        assert output.dtype == getattr(torch, dtype)


@pytest.mark.parametrize("name", ops.names())
def test_a_shipped_op_has_all_workload_sets_and_names_its_sizes(name: str) -> None:
    op = ops.load(name)
    assert {"ci", "typical", "edge", "heldout"} <= set(op.workloads)
    seen = [w.dims for which in op.workloads.values() for w in which]
    assert len({tuple(dims.items()) for dims in seen}) == len(seen), "a heldout size is shown"
    assert any(0 in w.dims.values() for w in op.workloads["edge"])
