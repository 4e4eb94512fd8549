"""The Op model: what it refuses, what it counts, and that every shipped op is coherent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from portkern import ops
from portkern.errors import ConfigError
from portkern.evaluator import inputs
from portkern.spec.op import FLOATS, Op, ScalarSpec, Signature, TensorSpec, Workload


def moments() -> Op:
    """An op with two outputs and a scalar."""

    def run(x: torch.Tensor, correction: int) -> tuple[torch.Tensor, torch.Tensor]:
        return x.mean(-1), x.var(-1, correction=correction)

    signature = Signature(
        "moments",
        ("rows", "cols"),
        (TensorSpec("x", ("rows", "cols")),),
        (TensorSpec("mean", ("rows",)), TensorSpec("var", ("rows",))),
        (ScalarSpec("correction", "int64", 1),),
    )
    work = Workload("4x8", {"rows": 4, "cols": 8}, {"correction": 0})
    return Op(
        signature, run, flops=lambda d: 3.0 * d["rows"] * d["cols"], workloads={"ci": (work,)}
    )


def test_a_signature_survives_json() -> None:
    for signature in (moments().signature, ops.load("embedding").signature):
        assert Signature.from_json(json.loads(json.dumps(signature.to_json()))) == signature


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
        drawn = inputs.draw(op, work, dtype, "normal")
        outputs = op.reference(*drawn, **op.signature.scalar_values(work.scalars))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for output, spec in zip(outputs, op.signature.outputs, strict=True):
            assert output.shape == spec.sizes(work.dims)
            assert output.dtype == getattr(torch, spec.resolve(dtype))


@pytest.mark.parametrize("name", ops.names())
def test_a_shipped_op_has_all_workload_sets_and_names_its_sizes(name: str) -> None:
    op = ops.load(name)
    assert {"ci", "typical", "edge", "heldout"} <= set(op.workloads)
    told = [ws for name, ws in op.workloads.items() if name != "headline"]  # some are typical
    seen = [(*w.dims.items(), *w.scalars.items()) for ws in told for w in ws]
    assert len(set(seen)) == len(seen), "a heldout size is shown"
    assert any(0 in w.dims.values() for w in op.workloads["edge"])


def test_a_length_that_follows_from_others_is_checked() -> None:
    op = ops.load("maxpool2d")
    dims = {"n": 1, "c": 1, "h": 8, "w": 8, "oh": 4, "ow": 4}
    op.check(Workload("w", dims))
    with pytest.raises(ConfigError, match="has ow=5, expected 4 from its other axes and scalars"):
        op.check(Workload("w", dims | {"ow": 5}))


def test_integers_are_drawn_within_their_bounds_from_every_distribution() -> None:
    op = ops.load("embedding")
    work = Workload("w", {"vocab": 7, "dim": 2, "n": 400})
    for distribution in (*inputs.DISTRIBUTIONS, *op.adversaries):
        _, index = inputs.draw(op, work, "float16", distribution)
        assert index.dtype == torch.int64
        assert 0 <= int(index.min()) <= int(index.max()) < 7
    assert len(set(inputs.draw(op, work, "float16", "constant")[1].tolist())) == 1
    assert int(inputs.draw(op, work, "float16", "offset")[1].min()) == 5


def test_bounds_are_for_integers_alone() -> None:
    spec = TensorSpec("x", ("n",), within=(0, 3))
    with pytest.raises(ConfigError, match="expected integers where `within` is given"):
        Signature("f", ("n",), (spec,), (TensorSpec("y", ("n",)),))


def test_an_embedding_need_not_read_the_rows_that_nobody_asks_for() -> None:
    op, dims = ops.load("embedding"), {"vocab": 1000, "dim": 8, "n": 1}
    assert op.read_bytes(dims, "float32") == 8 * 4 + 8
    assert op.nbytes(dims, "float32") == 8 * 4 + 8 + 8 * 4


@pytest.mark.parametrize("name", [name for name in ops.names() if ops.load(name).baseline])
def test_the_frameworks_way_comes_to_the_same_answer(name: str) -> None:
    """But for the order of equal elements and rounding."""
    op = ops.load(name)
    work = op.workloads["ci"][0]
    drawn = inputs.draw(op, work, "float32", "normal")
    scalars = op.signature.scalar_values(work.scalars)
    namespace: dict[str, Any] = {"Any": Any, "torch": torch}
    exec(op.baseline_source, namespace)
    torch.testing.assert_close(namespace["run"](*drawn, **scalars), op.reference(*drawn, **scalars))


def _spread(kind: object, generator: object, x: torch.Tensor) -> tuple[torch.Tensor]:
    return (x * 2,)


def _spread_wider(kind: object, generator: object, x: torch.Tensor) -> tuple[torch.Tensor]:
    return (x * 3,)


def _scaled(by: int) -> Callable[..., tuple[torch.Tensor]]:
    return lambda kind, generator, x: (x * by,)


def test_a_digest_follows_every_rule_of_an_op_and_what_its_adversaries_do() -> None:
    op = ops.load("relu")
    others = [
        replace(op, flops=lambda dims: 2.0 * dims["n"]),
        replace(op, terms=lambda dims: dims["n"]),
        replace(op, derived=lambda dims, scalars: {}),
        replace(op, reads=lambda dims, dtype: 4),
        replace(op, adversaries={"spread": _spread}),
        replace(op, adversaries={"spread": _spread_wider}),
        replace(op, adversaries={"spread": _scaled(2)}),
        replace(op, adversaries={"spread": _scaled(3)}),
        replace(op, dtypes=("float32",)),
    ]
    assert len({op.digest, *(other.digest for other in others)}) == len(others) + 1
    assert replace(op).digest == op.digest


def test_a_digest_is_the_same_in_another_process() -> None:
    code = (
        "from portkern import ops; "
        "print(*[ops.load(n).digest for n in ('relu', 'topk', 'conv2d', 'cross_entropy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = [ops.load(n).digest for n in ("relu", "topk", "conv2d", "cross_entropy")]
    assert done.stdout.split() == own
