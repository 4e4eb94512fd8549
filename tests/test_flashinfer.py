"""FlashInfer-Bench's Definitions and Workloads go in and out unchanged."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern import ops
from portkern.cells.selection import Selection
from portkern.errors import BackendUnavailable, ConfigError
from portkern.evaluator.inputs import draw
from portkern.spec.flashinfer import (
    DTYPES,
    load,
    read_definition,
    read_workloads,
    workload_uuid,
    write_definition,
    write_workloads,
)
from portkern.spec.op import CELL, Op, Scalar, ScalarSpec, Signature, TensorSpec, Workload

GEMM: dict[str, Any] = {
    "name": "gemm_n128_k64",
    "op_type": "gemm",
    "axes": {
        "M": {"type": "var"},
        "N": {"type": "const", "value": 128, "description": "columns"},
        "K": {"type": "const", "value": 64},
    },
    "inputs": {
        "A": {"shape": ["M", "K"], "dtype": "float16"},
        "alpha": {"shape": None, "dtype": "float32"},
        "B": {"shape": ["N", "K"], "dtype": "float16"},
    },
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(A, alpha, B):\n    return {'C': alpha * (A @ B.T)}\n",
    "tags": ["model:x"],
    "constraints": ["M > 0"],
}


def changed(**fields: Any) -> str:
    return json.dumps(GEMM | fields)


# A definition


def test_const_axes_are_lengths_and_inputs_without_shape_are_scalars() -> None:
    op = read_definition(json.dumps(GEMM))
    assert op.signature.axes == ("M",)
    assert op.signature.inputs == (
        TensorSpec("A", ("M", 64), "float16"),
        TensorSpec("B", (128, 64), "float16"),
    )
    assert op.signature.outputs == (TensorSpec("C", ("M", 128), "float16"),)
    assert op.signature.scalars == (ScalarSpec("alpha", "float32", 0.0),)
    assert op.dtypes == ("float16",)


def test_the_reference_gets_its_arguments_in_the_files_order() -> None:
    import torch

    op = read_definition(json.dumps(GEMM))
    a, b = torch.rand(3, 64, dtype=torch.float64), torch.rand(128, 64, dtype=torch.float64)
    assert torch.equal(op.reference(a, b, alpha=2.0), 2.0 * (a @ b.T))


def test_the_reference_is_not_run_before_it_is_called() -> None:
    source = "raise RuntimeError('run')\ndef run(A, alpha, B): ..."
    op = read_definition(changed(reference=source))
    with pytest.raises(RuntimeError, match="run"):
        op.reference(1, 2, alpha=3.0)


WRITABLE = [name for name in ops.names() if ops.load(name).derived is None]


@pytest.mark.parametrize("name", sorted({*ops.names()} - {*WRITABLE}))
def test_lengths_that_follow_from_others_and_bytes_are_not_in_the_format(name: str) -> None:
    said = "follow from others, and the format has no such axes|got 'uint8', expected one of"
    with pytest.raises(ConfigError, match=said):
        write_definition(ops.load(name), "float32")


@pytest.mark.parametrize("name", WRITABLE)
def test_shipped_ops_stand_on_their_own_as_definitions(name: str) -> None:
    import torch

    op = ops.load(name)
    text = write_definition(op, "float32")
    again = read_definition(text)
    assert again.signature.axes == op.signature.axes
    assert write_definition(again, "float32") == text
    workload = op.workloads["ci"][0]
    scalars = op.signature.scalar_values(workload.scalars)
    tensors = draw(op, workload, "float32", "normal")
    torch.testing.assert_close(
        again.reference(*tensors, **scalars), op.reference(*tensors, **scalars), rtol=0, atol=0
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "definition: got '{', expected JSON"),
        ("[]", r"definition: got \[\], expected a JSON object"),
        (changed(name=3), "name: got 3, expected a str"),
        (changed(name="a-b"), "name: got 'a-b', expected an identifier"),
        (changed(axes=None), "axes: got None, expected a dict"),
        (changed(axes={"M": {"type": "int"}}), "axes.M.type: got 'int', expected 'const' or 'var'"),
        (changed(axes={"M": {"type": "const", "value": "8"}}), "axes.M.value: got '8', expected a"),
        (changed(axes={"M": {"type": "const", "value": True}}), "axes.M.value: got True"),
        (changed(inputs={"A": {"shape": "MK", "dtype": "int8"}}), "inputs.A.shape: got 'MK'"),
        (changed(inputs={"A": {"shape": ["Q"], "dtype": "int8"}}), "inputs.A.shape: got 'Q'"),
        (
            changed(inputs={"A": {"shape": ["M"], "dtype": "float8_e4m3fn"}}),
            "inputs.A.dtype: got 'float8_e4m3fn', expected one of float32",
        ),
        (changed(axes=GEMM["axes"] | {"Z": {"type": "var"}}), "axes.Z: got 'a var axis in no"),
        (changed(outputs={"A": GEMM["outputs"]["C"]}), "uses the name 'A' more than once"),
        *(
            (changed(**{which: GEMM[which] | {word: one}}), "uses the name .*that code can have")
            for word in ("x=print(1)", "x):\n    print(1)\ndef y(z")
            for which, one in (
                ("inputs", {"shape": ["M"], "dtype": "float16"}),
                ("inputs", {"shape": None, "dtype": "float32"}),
                ("outputs", {"shape": ["M"], "dtype": "float16"}),
            )
        ),
        (changed(reference="def go(): ..."), "reference: got 'def go.*top-level function"),
        (changed(reference="def run(:"), "reference: got"),
    ],
)
def test_what_is_wrong_with_a_definition_is_one_line(text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error) as caught:
        read_definition(text)
    assert "\n" not in str(caught.value)


def test_an_op_the_format_cannot_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"x\.dtype: got 'float64'"):
        write_definition(ops.load("relu"), "float64")
    swapped = Op(
        Signature(
            "f",
            ("n",),
            (TensorSpec("x", ("n",)),),
            (TensorSpec("y", ("n",)),),
            (ScalarSpec("a", "float32", 0.0), ScalarSpec("b", "float32", 0.0)),
        ),
        lambda x, a, b: x,
        flops=lambda d: 0.0,
        workloads={},
        reference_source="def run(x, b, a):\n    return x\n",
    )
    with pytest.raises(ConfigError, match=r"got 'run\(x, b, a\)', expected scalars \('a', 'b'\)"):
        write_definition(swapped, "float32")


# Round trips

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not name.startswith("fixed_")
)
VALUES = {
    "float32": st.floats(allow_nan=False, allow_infinity=False),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
}


@st.composite
def operators(draw: st.DrawFn) -> Op:
    """Any signature the format can hold; the reference is never called here."""
    names = draw(st.lists(NAMES.filter(str.isidentifier), min_size=7, max_size=12, unique=True))
    names = [f"{name}_" for name in names]  # no keyword of Python's
    name, *names = names
    axes, names = tuple(names[:2]), names[2:]
    lengths = st.one_of(st.sampled_from(axes), st.integers(1, 2**31))
    shapes = st.lists(lengths, max_size=3).map(tuple)
    dtypes = st.sampled_from([CELL, *DTYPES])
    # The first input carries all axes, since each must be bound by some input.
    inputs = [TensorSpec(names[0], axes, draw(dtypes))]
    outputs = [TensorSpec(names[1], draw(shapes), draw(dtypes))]
    scalars = []
    for extra in names[2:]:
        kind = draw(st.sampled_from(["input", "output", "scalar"]))
        if kind == "scalar":
            scalars.append(ScalarSpec(extra, draw(st.sampled_from(sorted(VALUES))), False))
        else:
            (inputs if kind == "input" else outputs).append(
                TensorSpec(extra, draw(shapes), draw(dtypes))
            )
    taken = ", ".join([t.name for t in inputs] + [s.name for s in scalars])
    return Op(
        Signature(name, axes, tuple(inputs), tuple(outputs), tuple(scalars)),
        lambda *tensors: None,
        flops=lambda d: 0.0,
        workloads={},
        reference_source=f"def run({taken}):\n    ...\n",
        description=draw(st.text(max_size=20)),
    )


def draw_workload(draw: Callable[..., Any], op: Op) -> Workload:
    dims = {axis: draw(st.integers(0, 2**40)) for axis in op.signature.axes}
    scalars: dict[str, Scalar] = {s.name: draw(VALUES[s.dtype]) for s in op.signature.scalars}
    return Workload(draw(st.text(max_size=8)), dims, scalars)


@given(op=operators(), dtype=st.sampled_from(["float32", "float16", "bfloat16"]))
def test_definitions_round_trip(op: Op, dtype: str) -> None:
    text = write_definition(op, dtype)
    again = read_definition(text)
    assert again.signature.axes == op.signature.axes
    for old, new in zip(
        (*op.signature.inputs, *op.signature.outputs),
        (*again.signature.inputs, *again.signature.outputs),
        strict=True,
    ):
        assert new == TensorSpec(old.name, old.shape, old.resolve(dtype))
    kept = [(s.name, s.dtype) for s in again.signature.scalars]
    assert kept == [(s.name, s.dtype) for s in op.signature.scalars]
    assert again.description == op.description
    assert write_definition(again, dtype) == text
    assert read_definition(write_definition(again, dtype)).digest == again.digest


@given(data=st.data())
def test_workloads_round_trip(data: st.DataObject) -> None:
    op = data.draw(operators())
    given_workloads = [draw_workload(data.draw, op) for _ in range(data.draw(st.integers(0, 3)))]
    text = write_workloads(given_workloads, op)
    read = read_workloads(text, op)
    assert [(w.dims, w.scalars) for w in read] == [(w.dims, w.scalars) for w in given_workloads]
    assert [w.name for w in read] == [workload_uuid(w, op) for w in given_workloads]
    assert write_workloads(read, op) == text
    assert read_workloads(write_workloads(read, op), op) == read


# Workloads

RMSNORM = ops.load("rmsnorm")
TRACE: dict[str, Any] = {
    "definition": "rmsnorm",
    "workload": {
        "uuid": "6b9b2c5e-0f5c-4d5e-8a64-6b1a4f1d7a11",
        "axes": {"rows": 8, "cols": 64},
        "inputs": {
            "x": {"type": "random"},
            "weight": {"type": "random"},
            "eps": {"type": "scalar", "value": 1e-5},
        },
    },
    "solution": None,
    "evaluation": None,
}


def trace(**workload: Any) -> str:
    return json.dumps(TRACE | {"workload": TRACE["workload"] | workload})


def inputs(**changes: Any) -> dict[str, Any]:
    return {"inputs": TRACE["workload"]["inputs"] | changes}


def test_a_peers_workload_keeps_its_uuid() -> None:
    (workload,) = read_workloads(f"\n{json.dumps(TRACE)}\n", RMSNORM)
    assert workload.name == TRACE["workload"]["uuid"]
    assert workload.scalars == {"eps": 1e-5}
    assert json.loads(write_workloads([workload], RMSNORM)) == TRACE


def test_a_default_is_written_out_and_uuids_are_stable() -> None:
    written = write_workloads(RMSNORM.workloads["ci"], RMSNORM)
    assert written == write_workloads(RMSNORM.workloads["ci"], RMSNORM)
    rows = [json.loads(line)["workload"] for line in written.splitlines()]
    assert rows[0]["inputs"]["eps"] == {"type": "scalar", "value": 1e-6}
    assert len({uuid.UUID(row["uuid"]) for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("nope", "line 2: got 'nope', expected JSON"),
        (
            json.dumps(TRACE | {"definition": "relu"}),
            "line 2: definition: got 'relu', expected 'rm",
        ),
        (json.dumps(TRACE | {"solution": "s"}), "line 2: solution: got 's', expected null"),
        (json.dumps(TRACE | {"workload": None}), "line 2.workload: got None, expected a dict"),
        (trace(axes={"rows": -1, "cols": 2}), "line 2: axes.rows: got -1, expected a length"),
        (trace(axes={"rows": True, "cols": 2}), "line 2: axes.rows: got True"),
        (trace(axes={"rows": 1}), r"has the axes \['rows'\], expected \['cols', 'rows'\]"),
        (trace(inputs={}), r"line 2: inputs: got \[\], expected \['eps', 'weight', 'x'\]"),
        (
            trace(**inputs(x={"type": "safetensors", "path": "a"})),
            "line 2: inputs.x.tensor_key: got None, expected a str",
        ),
        (
            trace(**inputs(x={"type": "file"})),
            "line 2: inputs.x.type: got 'file', expected 'random' or 'safetensors' for a tensor",
        ),
        (trace(**inputs(eps={"type": "random"})), "inputs.eps.type: got 'random', expected 'sc"),
        (trace(**inputs(eps={"type": "scalar", "value": "1"})), "inputs.eps.value: got '1'"),
        (trace(**inputs(eps=None)), "line 2: inputs.eps: got None, expected a JSON object"),
    ],
)
def test_what_is_wrong_with_a_workload_names_its_line(line: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error) as caught:
        read_workloads(f"{json.dumps(TRACE)}\n{line}\n", RMSNORM)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "place", ["definitions/a/gemm.jsonl", "workloads/a/gemm.jsonl", "definitions/gemm.jsonl"]
)
def test_workloads_are_found_beside_a_definition_or_in_their_place_of_a_trace_set(
    tmp_path: Path, place: str
) -> None:
    definition = tmp_path / "definitions" / "a" / "gemm.json"
    lines = tmp_path / place
    for path in (definition, lines):
        path.parent.mkdir(parents=True, exist_ok=True)
    definition.write_text(json.dumps(GEMM), encoding="utf-8")
    inputs = {"A": {"type": "random"}, "B": {"type": "random"},
              "alpha": {"type": "scalar", "value": 2.0}}  # fmt: skip
    workload = {"uuid": "w0", "axes": {"M": 3}, "inputs": inputs}
    line = {"definition": "gemm_n128_k64", "workload": workload, "solution": None}
    lines.write_text(json.dumps(line) + "\n", encoding="utf-8")
    found = load(definition).workloads["ci"]
    assert [one.name for one in found] == (["w0"] if "/a/" in place else [])


def test_where_no_operator_has_such_workloads_it_is_said(tmp_path: Path) -> None:
    path = tmp_path / "gemm.json"
    path.write_text(json.dumps(GEMM), encoding="utf-8")
    for which, remedy in (("ci", "put a file of workloads beside"), ("edge", "put a file")):
        asked = Selection([str(path)], ["sm_90"], ["triton"], [which], ["float16"])
        with pytest.raises(BackendUnavailable, match=f"gemm_n128_k64 has no workloads in {which};"):
            asked.cells()
        with pytest.raises(BackendUnavailable, match=remedy):
            asked.cells()
