"""Operators and workloads in FlashInfer-Bench's JSON: its Definition, and its Workload as a Trace.

What that format has and portkern does not (constraints, 8-bit floats) is refused or, where it
changes no result, dropped; each function says which.
"""

from __future__ import annotations

import ast
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from portkern.errors import ConfigError
from portkern.spec.foreign_text import Malformed, json_value, python_tree, read_text
from portkern.spec.imported import ImportedReference
from portkern.spec.op import (
    Op,
    Scalar,
    ScalarSpec,
    Signature,
    StoredTensor,
    TensorSpec,
    Workload,
)
from portkern.spec.safe_name import SafeName, file_of

if TYPE_CHECKING:
    from portkern.spec.json_types import Json, JsonObject

T = TypeVar("T")

#: The dtypes that both have.
DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "bool")
_SCALARS = dict.fromkeys(("float32", "float16", "bfloat16"), "float32")
_SCALARS |= dict.fromkeys(("int64", "int32", "int16", "int8"), "int64") | {"bool": "bool"}
_ZERO: Mapping[str, Scalar] = {"float32": 0.0, "int64": 0, "bool": False}
_NAMESPACE = uuid.UUID("6f1f5a0e-6a0c-5b6e-9a50-0c8f6f1d2b11")


def read_definition(text: str) -> Op:
    """An op without workloads. Const axes become lengths; scalars default to zero, since the
    workloads carry their values; flops are not in the format and count as 0.

    Raises ConfigError. Tags and constraints are dropped.
    """
    data = _parse(text, "definition")
    name: str = _field(data, "name", str)
    if not name.isidentifier():  # native kernels are called by it
        raise _wrong("name", name, "an identifier")
    SafeName(name, "name of a Definition")
    lengths = {axis: _length(axis, spec) for axis, spec in _field(data, "axes", dict).items()}
    inputs = _field(data, "inputs", dict)
    scalars = tuple(_scalar(n, spec) for n, spec in inputs.items() if _is_scalar(n, spec))
    shaped = {n: spec for n, spec in inputs.items() if not _is_scalar(n, spec)}
    tensors = _tensors(shaped, lengths, "inputs")
    outputs = _tensors(_field(data, "outputs", dict), lengths, "outputs")
    source = _reference_source(_field(data, "reference", str))
    floats = [t.dtype for t in (*outputs, *tensors) if "float" in t.dtype]
    return Op(
        Signature(name, _variables(lengths, tensors), tensors, outputs, scalars),
        ImportedReference(name, source, tuple(inputs), tuple(t.name for t in outputs)),
        flops=lambda dims: 0.0,
        workloads={},
        dtypes=(floats[0] if floats else "float32",),
        description=_optional_field(data, "description", str) or "",
        reference_source=source,
    )


def write_definition(op: Op, dtype: str) -> str:
    """The Definition of ``op`` for cells of ``dtype``; the defaults of its scalars are not in it.

    Raises ConfigError for a dtype or an axis that the format lacks, or a reference it cannot call.
    """
    signature = op.signature
    bound = {axis for tensor in signature.inputs for axis in tensor.shape}
    for axis in signature.axes:
        if axis not in bound:
            raise ConfigError(
                f"Axes of {op.name!r} such as {axis!r} follow from others, "
                "and the format has no such axes"
            )
    fixed = {
        f"fixed_{length}": {"type": "const", "value": length}
        for tensor in (*signature.inputs, *signature.outputs)
        for length in tensor.shape
        if isinstance(length, int)
    }
    scalars = {s.name: {"shape": None, "dtype": s.dtype} for s in signature.scalars}
    inputs = {t.name: _tensor_json(t, dtype) for t in signature.inputs} | scalars
    if isinstance(op.reference, ImportedReference):
        inputs = {name: inputs[name] for name in op.reference.arguments}
    return json.dumps(
        {
            "name": op.name,
            "op_type": op.name,
            "description": op.description,
            "axes": {axis: {"type": "var"} for axis in signature.axes} | fixed,
            "inputs": inputs,
            "outputs": {t.name: _tensor_json(t, dtype) for t in signature.outputs},
            "reference": _runnable(op, tuple(inputs)),
            "tags": ["portkern"],
        },
        indent=2,
    )


def load(path: Path) -> Op:
    """A Definition; workloads in the ``.jsonl`` file beside it, or in its place of a trace set, are
    its ``ci`` set, and files of tensors that they name relative to its folder, or to the trace
    set's. Raises ConfigError."""
    op = read_definition(read_text(path))
    found, folder = _workloads_of(path)
    lines = read_text(found) if found.exists() else ""
    return replace(op, workloads={"ci": read_workloads(lines, op, folder)})


def _workloads_of(path: Path) -> tuple[Path, Path]:
    """The file of a Definition's workloads, and the folder that these name files from."""
    beside = path.with_suffix(".jsonl")
    root = next((one.parent for one in path.parents if one.name == "definitions"), None)
    if beside.exists() or root is None:
        return beside, path.parent
    return root / "workloads" / beside.relative_to(root / "definitions"), root


def read_workloads(jsonl: str, op: Op, folder: Path = Path()) -> tuple[Workload, ...]:
    """The workloads of ``op``, named by their uuid. Raises ConfigError for the first bad line."""
    lines = [(n, line) for n, line in enumerate(jsonl.split("\n"), 1) if line.strip()]
    parsed = ((_parse(line, f"line {n}"), f"line {n}") for n, line in lines)
    return tuple(_workload(data, op, where, folder) for data, where in parsed)


def write_workloads(workloads: Sequence[Workload], op: Op) -> str:
    """One Trace without a solution per line; every scalar is written out."""
    return "".join(json.dumps(_trace(workload, op)) + "\n" for workload in workloads)


def with_tensors(line: str, paths: Mapping[str, str]) -> str:
    """The workload of a line with other files of tensors, by the inputs that they are."""
    data = json_value(line)
    for name, path in paths.items():
        data["workload"]["inputs"][name]["path"] = path
    return json.dumps(data)


def workload_uuid(workload: Workload, op: Op) -> str:
    """The UUID of a workload: its name if that is one, else one that depends on nothing but the
    workload."""
    try:
        return str(uuid.UUID(workload.name))
    except ValueError:
        scalars = op.signature.scalar_values(workload.scalars)
        parts = [op.name, workload.name, dict(workload.dims), scalars]
        return str(uuid.uuid5(_NAMESPACE, json.dumps(parts, sort_keys=True)))


def _trace(workload: Workload, op: Op) -> JsonObject:
    op.check(workload)
    scalars = op.signature.scalar_values(workload.scalars)
    inputs: dict[str, Json] = {t.name: {"type": "random"} for t in op.signature.inputs}
    inputs |= {
        name: {"type": "safetensors", "path": str(stored.path), "tensor_key": stored.key}
        for name, stored in workload.stored.items()
    }
    inputs |= {name: {"type": "scalar", "value": value} for name, value in scalars.items()}
    axes = {axis: workload.dims[axis] for axis in op.signature.axes}
    return {
        "definition": op.name,
        "workload": {"uuid": workload_uuid(workload, op), "axes": axes, "inputs": inputs},
        "solution": None,
        "evaluation": None,
    }


def _workload(data: Mapping[str, object], op: Op, where: str, folder: Path) -> Workload:
    definition = _field(data, "definition", str, at=where)
    if definition != op.name:
        raise _wrong(f"{where}: definition", definition, repr(op.name))
    if data.get("solution") is not None:
        raise _wrong(f"{where}: solution", data["solution"], "null")
    workload = _field(data, "workload", dict, at=where)
    axes = _field(workload, "axes", dict, at=where)
    for axis, length in axes.items():
        if type(length) is not int or length < 0:
            raise _wrong(f"{where}: axes.{axis}", length, "a length, 0 or more")
    inputs = _field(workload, "inputs", dict, at=where)
    kinds: dict[str, str | None] = dict.fromkeys(t.name for t in op.signature.inputs)
    kinds |= {s.name: s.dtype for s in op.signature.scalars}
    if set(inputs) != set(kinds):
        raise _wrong(f"{where}: inputs", sorted(inputs), str(sorted(kinds)))
    scalars: dict[str, Scalar] = {}
    stored: dict[str, StoredTensor] = {}
    for name, kind in kinds.items():
        value = _value(inputs[name], kind, f"{where}: inputs.{name}", folder)
        if isinstance(value, StoredTensor):
            stored[name] = value
        elif value is not None:
            scalars[name] = value
    parsed = Workload(_field(workload, "uuid", str, at=where), axes, scalars, stored)
    op.check(parsed)
    return parsed


def _value(
    spec: object, dtype: str | None, where: str, folder: Path
) -> Scalar | StoredTensor | None:
    """A scalar's value; None for a tensor whose values portkern draws itself."""
    kind = _field(spec, "type", str, at=where)
    if dtype is None:
        if kind == "safetensors":
            path = _field(spec, "path", str, at=where)
            key = _field(spec, "tensor_key", str, at=where)
            return StoredTensor(file_of(folder, path, f"tensors of {where}"), key)
        if kind != "random":
            raise _wrong(f"{where}.type", kind, "'random' or 'safetensors' for a tensor")
        return None
    if kind != "scalar":
        raise _wrong(f"{where}.type", kind, "'scalar'")
    assert isinstance(spec, dict)  # it has a field
    value: Any = spec.get("value")
    fits = {"float32": (int, float), "int64": (int,), "bool": (bool,)}[dtype]
    if type(value) not in fits:
        raise _wrong(f"{where}.value", value, f"a value of {dtype}")
    scalar: Scalar = float(value) if dtype == "float32" else value
    return scalar


def _length(axis: str, spec: object) -> str | int:
    """A const axis' length, a var axis' own name."""
    kind = _field(spec, "type", str, at=f"axes.{axis}")
    if kind == "var":
        return axis
    if kind != "const":
        raise _wrong(f"axes.{axis}.type", kind, "'const' or 'var'")
    value: int = _field(spec, "value", int, at=f"axes.{axis}")
    return value


def _variables(lengths: Mapping[str, str | int], inputs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """The var axes; a workload's inputs must give each of them its length."""
    bound = {axis for tensor in inputs for axis in tensor.shape}
    variables = tuple(axis for axis, length in lengths.items() if isinstance(length, str))
    for axis in variables:
        if axis not in bound:
            raise _wrong(f"axes.{axis}", "a var axis in no input", "a shape that binds it")
    return variables


def _is_scalar(name: str, spec: object) -> bool:
    return _optional_field(spec, "shape", list, at=f"inputs.{name}") is None


def _tensors(
    specs: Mapping[str, object], lengths: Mapping[str, str | int], where: str
) -> tuple[TensorSpec, ...]:
    return tuple(_tensor(name, spec, lengths, where) for name, spec in specs.items())


def _tensor(name: str, spec: object, lengths: Mapping[str, str | int], where: str) -> TensorSpec:
    shape = _optional_field(spec, "shape", list, at=f"{where}.{name}") or []
    for axis in shape:
        if not isinstance(axis, str) or axis not in lengths:
            raise _wrong(f"{where}.{name}.shape", axis, f"an axis of {sorted(lengths)}")
    return TensorSpec(name, tuple(lengths[axis] for axis in shape), _dtype(spec, f"{where}.{name}"))


def _scalar(name: str, spec: object) -> ScalarSpec:
    dtype = _SCALARS[_dtype(spec, f"inputs.{name}")]
    return ScalarSpec(name, dtype, _ZERO[dtype])


def _dtype(spec: object, where: str) -> str:
    dtype: str = _field(spec, "dtype", str, at=where)
    if dtype not in DTYPES:
        raise _wrong(f"{where}.dtype", dtype, f"one of {', '.join(DTYPES)}")
    return dtype


def _tensor_json(tensor: TensorSpec, dtype: str) -> JsonObject:
    resolved = tensor.resolve(dtype)
    if resolved not in DTYPES:
        raise _wrong(f"{tensor.name}.dtype", resolved, f"one of {', '.join(DTYPES)}")
    shape = [axis if isinstance(axis, str) else f"fixed_{axis}" for axis in tensor.shape]
    return {"shape": shape, "dtype": resolved}


def _reference_source(source: str) -> str:
    if _run_arguments(source) is None:
        raise _wrong("reference", source, "Python with a top-level function run()")
    return source


def _run_arguments(source: str) -> tuple[str, ...] | None:
    """The parameters of the top-level ``run``; None without one."""
    try:
        tree = python_tree(source)
    except (SyntaxError, ValueError):  # ValueError: a null byte
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "run":
            return tuple(arg.arg for arg in (*node.args.posonlyargs, *node.args.args))
    return None


def _runnable(op: Op, inputs: tuple[str, ...]) -> str:
    """The reference as a module of its own; called with the inputs by position."""
    theirs = isinstance(op.reference, ImportedReference)
    source = (
        op.reference.source if isinstance(op.reference, ImportedReference) else op.reference_source
    )
    taken = _run_arguments(source)
    scalars = tuple(name for name in inputs if name in {s.name for s in op.signature.scalars})
    if taken is None or len(taken) != len(inputs):
        raise _wrong(f"reference of {op.name}", source, f"run({', '.join(inputs)})")
    if tuple(name for name in taken if name in scalars) != scalars:
        raise _wrong(f"reference of {op.name}", f"run({', '.join(taken)})", f"scalars {scalars}")
    if theirs:
        return source
    # Annotations name what the module of the op imports (Any); here nothing evaluates them.
    return f"from __future__ import annotations\n\n\n{source}"


def _parse(text: str, where: str) -> dict[str, object]:
    try:
        data = json_value(text)
    except Malformed as error:
        raise _wrong(where, text, f"JSON ({error})") from error
    if not isinstance(data, dict):
        raise _wrong(where, data, "a JSON object")
    return data


def _field(data: object, key: str, kind: type[T], *, at: str = "") -> T:
    """``data[key]``, which must be there; bool does not pass for int."""
    name = f"{at}.{key}" if at else key
    if not isinstance(data, dict):
        raise _wrong(at, data, "a JSON object")
    value = data.get(key)
    if type(value) is not kind:
        raise _wrong(name, value, f"a {kind.__name__}")
    checked: T = value
    return checked


def _optional_field(data: object, key: str, kind: type[T], *, at: str = "") -> T | None:
    absent = isinstance(data, dict) and data.get(key) is None
    return None if absent else _field(data, key, kind, at=at)


def _wrong(field: str, got: object, expected: str) -> ConfigError:
    text = repr(got)
    short = text if len(text) <= 60 else f"{text[:57]}..."
    where = " ".join(field.split())  # an axis may be called by several lines
    return ConfigError(f"FlashInfer-Bench {where[:200]}: got {short}, expected {expected}")
