"""The sheet beside a PyTorch file, ``FILE.op.yaml``: all that portkern takes its operator to be.

It is derived once and read from then on, so that nothing depends on a machine's load or on torch's
version; a person may change it. Two digests say what it belongs to: the file's, and the sheet's own
as it was derived.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from portkern.errors import ConfigError
from portkern.spec.expression import Expression
from portkern.spec.foreign_text import Malformed, place_of, yaml_value
from portkern.spec.from_torch.adversaries import Adversary
from portkern.spec.from_torch.names import is_identifier
from portkern.spec.from_torch.source import reference_source
from portkern.spec.from_torch.traced import Argument, Draws, How, Traced
from portkern.spec.imported import ImportedInputs, ImportedReference
from portkern.spec.module_form import ModuleForm, constructor_source, integers
from portkern.spec.op import (
    CELL,
    ITEMSIZE,
    WORKLOAD_SETS,
    Op,
    Precision,
    Scalar,
    ScalarSpec,
    Signature,
    TensorSpec,
    Workload,
)

SUFFIX = ".op.yaml"
_HEAD = """\
# What portkern takes {operator} of {file} to be. Kernels are evaluated by this:
# requirements, inputs and workloads may be changed.
# 'portkern op {file} fresh=true' derives it again.
"""
Length = int | str


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(_Strict):
    """``state``: the parameter or buffer of the module it stands for. ``draws``: how values are
    made of normal ones: fan_in, scale, positive, unit; own: as the file makes an argument, or its
    constructor a buffer."""

    shape: list[Length]
    dtype: str = CELL
    within: tuple[int, Length] | None = None
    state: str = ""
    draws: Draws = ""


class Output(_Strict):
    shape: list[Length]
    dtype: str = CELL


class ScalarInput(_Strict):
    dtype: Literal["float32", "int64", "bool"]
    default: bool | int | float


class Sheet(_Strict):
    """A sheet as it is in YAML; :meth:`op` checks that it fits together."""

    name: str
    file: str
    operator: str
    kind: Literal["function", "module"]
    traced: How
    notes: list[str] = []
    axes: dict[str, int]
    derived: dict[str, str] = {}
    requires: list[str] = []
    inputs: dict[str, Input]
    outputs: dict[str, Output]
    scalars: dict[str, ScalarInput] = {}
    #: What the operator is called with, in order: names of the above, and values as {value: None}.
    arguments: list[str | dict[Literal["value"], str]]
    changes_itself: bool = False
    own_inputs: bool = False  # of sheets before inputs said so each: all arguments are own
    #: Axes whose length the file's number of that name fixes, and the constructor takes.
    constants: list[str] = []
    dtypes: list[str]
    precision: Precision = "strict"
    flops: str
    reads: dict[str, str] = {}
    adversaries: list[str] = []
    workloads: dict[str, list[dict[str, int]]]
    file_sha256: str
    as_derived: str = Field(default="")

    @property
    def edited(self) -> bool:
        """Whether a person changed it since it was derived."""
        return self.as_derived != self._digest()

    def _digest(self) -> str:
        said = self.model_dump(mode="json", exclude={"as_derived"})
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def fits(self, source: str) -> bool:
        """Whether it is of this text of the file."""
        return self.file_sha256 == text_digest(source)

    def text(self) -> str:
        """The sheet as YAML, with a line for each tensor and workload, signed so that it counts as
        derived."""
        signed = self.model_copy(update={"as_derived": self._digest()})
        dumped = signed.model_dump(mode="json", exclude_defaults=True, exclude={"axes"})
        data = {key: dumped.get(key) for key in type(self).model_fields if key in dumped}
        lines = [_HEAD.format(operator=self.operator, file=self.file)]
        for key in type(self).model_fields:
            if key == "axes":
                lines += [f"axes: {_flow(self.axes)}\n"]
            elif key in data:
                lines.append(_entry(key, data[key]))
        return "".join(lines)

    def op(self, source: str) -> Op:
        """The operator, whose reference is the file's own code. Raises ConfigError."""
        signature = self._signature()
        if self.kind == "module":
            signature = replace(signature, module=self._module_form(source))
        axes = {*signature.axes}
        for text in (*self.requires, *self.derived.values(), self.flops, *self.reads.values()):
            unknown = Expression(text).names - axes
            if unknown:
                raise ConfigError(f"{text!r} names {min(unknown)!r}, expected of {sorted(axes)}")
        state = {name: one.state for name, one in self.inputs.items() if one.state}
        arguments = self._arguments()
        text = reference_source(
            source,
            self.operator,
            inputs=[*self.inputs],
            scalars=[*self.scalars],
            state=state,
            arguments=arguments,
            module=self.kind == "module",
            changes_itself=self.changes_itself,
            constants={name: self._length_of(name) for name in self.constants},
        )
        order = (*self.inputs, *self.scalars)
        derived = DerivedAxes(
            tuple((axis, Expression(said)) for axis, said in self.derived.items())
        )
        return Op(
            signature,
            ImportedReference(self.name, text, order, tuple(self.outputs)),
            flops=Expression(self.flops),
            workloads=self._workloads(derived),
            dtypes=tuple(self.dtypes),
            precision=self.precision,
            adversaries=self._adversaries(),
            derived=derived if self.derived else None,
            reads=self._reads(signature),
            description="",
            reference_source=self._shown(source),
            run_source=text,
            requires=tuple(map(Expression, self.requires)),
            draws={name: one.draws for name, one in self.inputs.items() if one.draws},
            own_inputs=self._own_inputs(source, arguments),
            definition=json.dumps([self.model_dump(mode="json"), source], sort_keys=True),
        )

    def _shown(self, source: str) -> str:
        """The file for who writes a kernel, and what its inputs are there."""
        state = [f"{name} is {one.state}" for name, one in self.inputs.items() if one.state]
        given = [one if isinstance(one, str) else one["value"] for one in self.arguments]
        called = f"{', '.join(self.outputs)} = {self.operator}({', '.join(given)})"
        return f"{source.rstrip()}\n\n# The kernel's outputs: {'; '.join([called, *state])}\n"

    def _signature(self) -> Signature:
        for name in (self.name, *self.axes, *self.derived, *self.inputs, *self.outputs):
            if not is_identifier(name):
                raise ConfigError(f"Got the name {name!r}, expected one that C and Python take")
        dtypes = [one.dtype for one in self.inputs.values()]
        dtypes += [one.dtype for one in self.outputs.values()]
        for dtype in dtypes:
            if dtype not in (*ITEMSIZE, CELL):
                raise ConfigError(f"Got dtype {dtype!r}, expected {CELL} or of {sorted(ITEMSIZE)}")
        return Signature(
            self.name,
            (*self.axes, *self.derived),
            tuple(
                TensorSpec(name, tuple(one.shape), one.dtype, one.within)
                for name, one in self.inputs.items()
            ),
            tuple(
                TensorSpec(name, tuple(one.shape), one.dtype) for name, one in self.outputs.items()
            ),
            tuple(ScalarSpec(name, one.dtype, one.default) for name, one in self.scalars.items()),
        )

    def _module_form(self, source: str) -> ModuleForm:
        state = {name: one.state for name, one in self.inputs.items() if one.state}
        return ModuleForm(
            constructor_source(source, self.operator),
            state,
            tuple(self._arguments()),
            integers(source),
            self.axes,
        )

    def _length_of(self, axis: str) -> str:
        """The expression by which the reference sees how long an axis is."""
        for name, one in self.inputs.items():
            if axis in one.shape:
                return f"{name}.shape[{one.shape.index(axis)}]"
        raise ConfigError(f"constants name {axis!r}, which is the length of no input")

    def _arguments(self) -> list[Argument]:
        known = {*self.inputs, *self.scalars}
        arguments = []
        for one in self.arguments:
            if isinstance(one, str) and one not in known:
                raise ConfigError(f"arguments name {one!r}, expected inputs and scalars")
            arguments.append(Argument(one) if isinstance(one, str) else Argument("", one["value"]))
        return arguments

    def _workloads(self, derived: DerivedAxes) -> dict[str, tuple[Workload, ...]]:
        """Lengths that follow from others may be left out."""
        scalars: Mapping[str, Scalar] = {}
        made: dict[str, tuple[Workload, ...]] = {}
        for which in sorted(self.workloads, key=[*WORKLOAD_SETS, *self.workloads].index):
            several = []
            for dims in self.workloads[which]:
                free = {axis: length for axis, length in dims.items() if axis not in self.derived}
                if missing := set(self.axes) - set(free):
                    raise ConfigError(f"A workload of {which!r} has no length of {min(missing)!r}")
                full = free | dict(derived(free, scalars)) | dims
                name = "x".join(str(free[axis]) for axis in self.axes) or "fixed"
                several.append(Workload(name, full))
            made[which] = tuple(several)
        return made

    def _adversaries(self) -> dict[str, Adversary]:
        floats = [
            name
            for name, one in self.inputs.items()
            if (one.dtype == CELL or "float" in one.dtype) and not self._is_own(one)
        ]
        return {text: Adversary.parse(text, [*self.inputs], floats) for text in self.adversaries}

    def _reads(self, signature: Signature) -> PartialReads | None:
        if not self.reads:
            return None
        for name in self.reads:
            if name not in self.inputs:
                raise ConfigError(f"reads names {name!r}, expected of {sorted(self.inputs)}")
        parts = tuple((name, Expression(text)) for name, text in self.reads.items())
        return PartialReads(signature, parts)

    def _own_inputs(self, source: str, arguments: Sequence[Argument]) -> ImportedInputs | None:
        own = {name: one for name, one in self.inputs.items() if self._is_own(one)}
        if not own:
            return None
        state = {name: one.state for name, one in own.items() if one.state}
        names = tuple(one.name if one.name in own else "" for one in arguments)
        shapes = tuple(tuple(one.shape) for one in self.inputs.values() if not one.state)
        lengths = dict(self.axes)
        lengths |= {axis: int(Expression(said)(lengths)) for axis, said in self.derived.items()}
        return ImportedInputs(self.name, source, self.operator, names, state, lengths, shapes)

    def _is_own(self, one: Input) -> bool:
        return one.draws == "own" or (self.own_inputs and not one.state)


@dataclass(frozen=True)
class DerivedAxes:
    """The lengths that follow from others."""

    parts: tuple[tuple[str, Expression], ...]

    def __call__(self, dims: Mapping[str, int], scalars: Mapping[str, Scalar]) -> dict[str, int]:
        return {axis: int(length(dims)) for axis, length in self.parts}


@dataclass(frozen=True)
class PartialReads:
    """The bytes of inputs where some are read in part."""

    signature: Signature
    parts: tuple[tuple[str, Expression], ...]

    def __call__(self, dims: Mapping[str, int], dtype: str) -> int:
        known = dict(self.parts)
        total = 0
        for tensor in self.signature.inputs:
            elements = known[tensor.name](dims) if tensor.name in known else tensor.nelements(dims)
            total += int(elements) * ITEMSIZE[tensor.resolve(dtype)]
        return total


def of(traced: Traced, file: str, source: str) -> Sheet:
    """A sheet of what was traced. Raises ConfigError for what cannot be one."""
    return _checked(
        {
            "name": traced.name,
            "file": file,
            "operator": traced.operator,
            "kind": "module" if traced.module else "function",
            "traced": traced.how,
            "notes": list(traced.notes),
            "axes": dict(traced.axes),
            "derived": dict(traced.derived),
            "requires": list(traced.requires),
            "inputs": {
                one.name: {
                    "shape": list(one.shape),
                    "dtype": one.dtype,
                    "within": one.within,
                    "state": one.state,
                    "draws": one.draws,
                }
                for one in traced.inputs
            },
            "outputs": {
                one.name: {"shape": list(one.shape), "dtype": one.dtype} for one in traced.outputs
            },
            "scalars": {
                one.name: {"dtype": one.dtype, "default": one.default} for one in traced.scalars
            },
            "arguments": [one.name or {"value": one.value} for one in traced.arguments],
            "changes_itself": traced.changes_itself,
            "constants": list(traced.constants),
            "dtypes": list(traced.dtypes),
            "flops": traced.flops,
            "reads": dict(traced.reads),
            "adversaries": list(traced.adversaries),
            "workloads": {
                which: [
                    {axis: length for axis, length in dims.items() if axis in traced.axes}
                    for dims in several
                ]
                for which, several in traced.workloads.items()
            },
            "file_sha256": text_digest(source),
        }
    )


def read(text: str, where: str) -> Sheet:
    """Raises ConfigError, which names ``where``."""
    try:
        data = yaml_value(text)
    except Malformed as error:
        raise ConfigError(f"{where} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: got {type(data).__name__}, expected a mapping")
    try:
        return _checked(data)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def text_digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def _checked(data: Mapping[str, object]) -> Sheet:
    try:
        return Sheet.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = place_of(first["loc"])
        raise ConfigError(f"{field}: got {str(first['input'])[:60]!r}, {first['msg']}") from error


def _flow(value: object) -> str:
    return (
        yaml.safe_dump(
            value, default_flow_style=True, sort_keys=False, width=1 << 30, allow_unicode=True
        )
        .removesuffix("...\n")
        .strip()
    )


def _entry(key: str, value: object) -> str:
    """The YAML of one entry; mappings of mappings, and lists, get a line for each of their
    items."""
    if (
        isinstance(value, dict)
        and value
        and all(isinstance(v, dict | list) for v in value.values())
    ):
        inner = "".join(_nested(name, one) for name, one in value.items())
        return f"{key}:\n{inner}"
    if isinstance(value, list) and value and key not in ("arguments", "dtypes"):
        return f"{key}:\n" + "".join(f"  - {_flow(one)}\n" for one in value)
    return f"{key}: {_flow(value)}\n"


def _nested(name: str, value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"  {name}:\n" + "".join(f"    - {_flow(one)}\n" for one in value)
    return f"  {name}: {_flow(value)}\n"
