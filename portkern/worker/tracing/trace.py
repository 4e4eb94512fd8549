"""Finds the operator in a file's text: what goes into the sheet beside the file."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch  # noqa: TID253 - imported where a file is traced, in a worker
from torch._subclasses.fake_tensor import (  # noqa: TID253
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.export import ExportedProgram  # noqa: TID253
from torch.fx.experimental.symbolic_shapes import (  # noqa: TID253
    GuardOnDataDependentSymNode,
)
from torch.utils._pytree import tree_leaves  # noqa: TID253

from portkern.spec.expression import Expression
from portkern.spec.from_torch.names import identifier, operator_name
from portkern.spec.from_torch.traced import (
    Argument,
    Draws,
    Traced,
    TracedScalar,
    TracedTensor,
    Tracing,
    Untraceable,
)
from portkern.spec.imported import ImportedInputs
from portkern.spec.op import CELL, FLOATS, ITEMSIZE
from portkern.worker.tracing import counting, odd_values, retracing, symbols
from portkern.worker.tracing.axes import TracedAxes
from portkern.worker.tracing.calling import CallWatch, FakeCall, place
from portkern.worker.tracing.constants import (
    Following,
    Multiple,
    Place,
    following,
    moving,
    step,
)
from portkern.worker.tracing.exporting import Exported
from portkern.worker.tracing.loading import (
    MODEL,
    LoadedOperator,
    NotAnOperator,
    Origin,
    load,
    naming,
    state_of,
)
from portkern.worker.tracing.retracing import Retracing
from portkern.worker.tracing.trying import sizes_made, with_workloads

_DATA_DEPENDENT = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)
#: A file's text of a longer expression says nothing to a reader.
_LONGEST = 4000
#: The length from which on an axis that never varies is worth a second look.
_LONG = 8
#: A requirement that bounds one length, as each step of a loop does.
_BOUND = re.compile(r"(?P<of>\w+) (>|>=|==) (?P<at>\d+)$")
#: A requirement that says what a length is or by which number it is bound, which is the
#: constructor's, not what it is a multiple of.
_PINNING = re.compile(r"^(?!.* % \d+ == 0$).*( == |\b([89]|\d\d+)\b)")


def trace(
    source: str,
    filename: str,
    wanted: str,
    name: str,
    *,
    lift: bool = True,
    as_in_file: bool = False,
) -> Tracing:
    """Traces the file's operator ``wanted`` (its only one where that is empty). An operator that
    is called ``Model``, as many are, gets the ``name``, others their own. ``lift``: whether
    parameters and buffers are inputs, or fixed as the constructor leaves them; ``as_in_file``:
    whether inputs keep the file's sizes."""
    with naming(source, filename):
        try:
            loaded = load(source, filename, wanted)
            if loaded.name != MODEL:
                name = operator_name(loaded.name)
            return Tracing(_traced(loaded, name, filename, lift, as_in_file), None, loaded.names)
        except NotAnOperator as error:
            return Tracing(None, Untraceable(str(error), error.line), error.operators)
        except Exception as error:  # noqa: BLE001 - the file's own code may raise anything
            return Tracing(None, _untraceable(error, filename))


@dataclass(frozen=True)
class TracedGraph:
    """A file's operator as torch exports it. ``inputs``: what placeholders stand for, by the names
    of the sheet; ``axes``: of symbols; ``known``: what stands in the place of other symbols.
    ``retracing``: with other numbers than those at which it was exported."""

    program: ExportedProgram
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    axes: Mapping[sympy.Symbol, str]
    known: Mapping[sympy.Symbol, sympy.Expr]
    retracing: Retracing


def graph(
    source: str, filename: str, wanted: str, name: str, *, lift: bool
) -> TracedGraph | Untraceable:
    """The graph behind what :func:`trace` says of the same."""
    with naming(source, filename):
        try:
            loaded = load(source, filename, wanted)
            if loaded.name != MODEL:
                name = operator_name(loaded.name)
            description, program = _described(loaded, name, filename, lift)
            if isinstance(program, Exported):
                return description.graph(program)
            return Untraceable(f"torch.export cannot trace it ({_first_line(program)})")
        except NotAnOperator as error:
            return Untraceable(str(error), error.line)
        except Exception as error:  # noqa: BLE001 - the file's own code may raise anything
            return _untraceable(error, filename)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:160]


def _untraceable(error: Exception, filename: str) -> Untraceable:
    line, text = place(traceback.extract_tb(error.__traceback__), filename)
    if isinstance(error, SyntaxError) and error.filename == filename:
        return Untraceable(
            f"is not Python: {error.msg}", error.lineno or 0, (error.text or "").strip()
        )
    said = " ".join(str(error).split())[:300]
    if isinstance(error, _DATA_DEPENDENT):
        problem = "what it does there depends on values of tensors, expected sizes only"
        return Untraceable(problem, line, text)
    kind = type(error).__name__
    if "cuda" in said.lower():
        said += " (portkern places tensors on devices itself: leave them out of the file)"
    if isinstance(error, OSError | ImportError):
        said += " (the file runs confined, without the user's files and without a network)"
    return Untraceable(f"raised {kind}: {said}", line, text)


# ---- the operator


def _traced(
    loaded: LoadedOperator, name: str, filename: str, lift: bool, as_in_file: bool
) -> Traced:
    description, program = _described(loaded, name, filename, lift)
    description.as_in_file = as_in_file
    if isinstance(program, Exported):
        return description.of_graph(program)
    return description.of_call(_first_line(program))


def _described(
    loaded: LoadedOperator, name: str, filename: str, lift: bool
) -> tuple[OperatorDescription, Exported | Exception]:
    call = FakeCall(loaded, _lifted(state_of(loaded)) if lift else {})
    with CallWatch(filename) as watch:
        outputs = call.outputs()
    watch.check(outputs)
    changes_itself = loaded.model is not None and call.changes_itself()
    _check_outputs(outputs)
    described = OperatorDescription(loaded, name, call, outputs, changes_itself)
    return described, retracing.program_of(call)


def _lifted(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The state that becomes inputs: all but single integers, which count calls."""
    return {key: one for key, one in state.items() if one.ndim or one.is_floating_point()}


def _check_outputs(outputs: Sequence[object]) -> None:
    if not outputs:
        raise NotAnOperator("returns nothing; expected a tensor or a tuple of tensors")
    for output in outputs:
        if not isinstance(output, torch.Tensor):
            raise NotAnOperator(
                f"returns {type(output).__name__}, expected a tensor or a tuple of tensors"
            )
        if _dtype(output) not in ITEMSIZE:
            raise NotAnOperator(
                f"returns elements of {_dtype(output)}, expected one of {', '.join(ITEMSIZE)}"
            )


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


# ---- what was found


@dataclass
class OperatorDescription:
    loaded: LoadedOperator
    name: str
    call: FakeCall
    outputs: list[Any]
    changes_itself: bool

    def __post_init__(self) -> None:
        self.tensors = dict(self._given())
        for key, example in self.tensors.items():
            if _dtype(example) not in ITEMSIZE:
                raise NotAnOperator(
                    f"{key.partition('.')[2]} has elements of {_dtype(example)}, expected one of "
                    f"{', '.join(ITEMSIZE)}"
                )
        self.names = self._names()
        self.scalars = self._scalars()
        #: Whether lengths that may vary to torch are fixed by the constructor's numbers.
        self.pinned = False
        #: Inputs that no distribution stands for: the file scales, sorts or writes into them.
        self.shaped = [key for key in self.tensors if self._origin(key).shaped]
        self.as_in_file = False
        #: Symbols that keep the file's length.
        self.kept: dict[sympy.Symbol, sympy.Expr] = {}
        #: Lengths that tracing fixed and calls do not, as those of a loop, with what follows them.
        self.moving: dict[str, Mapping[Place, Multiple]] = {}
        floats = [one.dtype for one in self.tensors.values() if one.is_floating_point()]
        self.cell = floats[0] if floats else torch.float32

    def _given(self) -> Iterator[tuple[str, torch.Tensor]]:
        for number, one in enumerate(self.loaded.inputs):
            if isinstance(one, torch.Tensor):
                yield f"input.{number}", one
        for key, one in self.call.lifted.items():
            yield f"state.{key}", one

    def _names(self) -> dict[str, str]:
        """The names of inputs, by parameter, and of state, by where it is in the module."""
        names: dict[str, str] = {}
        for key in self.tensors:
            kind, _, rest = key.partition(".")
            plain = self.loaded.parameters[int(rest)] if kind == "input" else rest
            names[key] = identifier(plain, taken=[*names.values(), self.name])
        return names

    def graph(self, result: Exported) -> TracedGraph:
        nodes = self._placeholders(result)
        axes, _ = self._axes(result, nodes)
        if axes.moving:
            lengths = ", ".join(axes.moving)
            raise NotAnOperator(
                f"is another graph at each length of {lengths}, over which it loops or of which it "
                "makes a number; expected one graph for all lengths"
            )
        return TracedGraph(
            result.program,
            {node: self.names[key] for key, node in nodes.items()},
            tuple(map(self._output_name, range(len(self.outputs)))),
            axes.names,
            axes.known,
            Retracing(
                self.call,
                axes.constants,
                {scalar.name: number for number, scalar in self.scalars.items()},
                result.how,
            ),
        )

    def _placeholders(self, result: Exported) -> dict[str, str]:
        """The node's name of each input."""
        values = _placeholder_values(result)
        user_inputs = result.program.graph_signature.user_inputs
        shaped = [one for one in user_inputs if isinstance(values.get(one), torch.Tensor)]
        # the state comes first there, in its order, then the inputs
        keys = [f"state.{key}" for key in result.state]
        keys += [key for key in self.tensors if key.startswith("input.")]
        placed = zip(keys, shaped, strict=True)
        return {key: node for key, node in placed if key in self.tensors}

    def _axes(
        self, result: Exported, nodes: Mapping[str, str]
    ) -> tuple[TracedAxes, tuple[str, ...]]:
        """And what their lengths must fulfil."""
        values = _placeholder_values(result)
        shapes = {key: symbols.sizes_of(values[node].shape) for key, node in nodes.items()}
        ordered = {key: shapes[key] for key in self.tensors}
        guards = _guards(values.values(), result.program.graph)
        axes = TracedAxes(self, ordered, self._following(ordered))
        requires = self._requires(guards, axes)
        if any(_PINNING.search(one) for one in requires):
            self.pinned = True
            axes = TracedAxes(self, ordered, self._following(ordered))
            requires = self._requires(guards, axes)
        self.moving = self._moving(axes, ordered, requires)
        if self.moving:
            axes = TracedAxes(self, ordered, self._following(ordered))
            requires = self._requires(guards, axes)
        self.kept = self._not_made(axes, ordered)
        if self.kept:
            axes = TracedAxes(self, ordered, self._following(ordered))
            requires = self._requires(guards, axes)
        return axes, (*requires, *self._constructed(axes, ordered, requires))

    def _moving(
        self, axes: TracedAxes, shapes: Mapping[str, list[sympy.Expr]], requires: Sequence[str]
    ) -> dict[str, Mapping[Place, Multiple]]:
        """Lengths that tracing fixed, with those that it bound to be no less, by the name of their
        axis: what a loop runs over is as long in all that it reads, and in calls it may vary."""
        if self.as_in_file:
            return {}
        bounds = filter(None, map(_BOUND.match, requires))
        bound = {one["of"]: int(one["at"]) for one in bounds}
        places: dict[int, list[Place]] = {}
        fixed: set[int] = set()
        for key, sizes in shapes.items():
            for dim, size in enumerate(sizes):
                length = int(self.tensors[key].shape[dim])
                plain = isinstance(size, sympy.Integer) and axes.follow.of((key, dim)) is None
                if plain and key.startswith("input."):
                    fixed.add(length)
                if plain or bound.get(axes.names.get(size, "")) in (length - 1, length):
                    places.setdefault(length, []).append((key, dim))
        found: dict[str, Mapping[Place, Multiple]] = {}
        for length in sorted(fixed - {0, 1}):
            moved = moving(self.call, places[length], length)
            key, dim = places[length][0]
            name = axes.names.get(shapes[key][dim], "") or identifier(
                f"{self.names[key]}_{dim}", taken=[*axes.taken, *axes.lengths]
            )
            if moved:
                found[name] = moved
        return found

    def _not_made(
        self, axes: TracedAxes, shapes: Mapping[str, list[sympy.Expr]]
    ) -> dict[sympy.Symbol, sympy.Expr]:
        """Sizes of inputs that the file's function, which alone can make them, does not make when
        it is asked for others."""
        kept: dict[sympy.Symbol, sympy.Expr] = {}
        if self.as_in_file:
            given = (key for key in shapes if key.startswith("input."))
            return {
                size: sympy.Integer(int(length))
                for key in given
                for size, length in zip(shapes[key], self.tensors[key].shape, strict=True)
                if isinstance(size, sympy.Symbol) and size in axes.names
            }
        if not self.shaped:
            return kept
        lengths = sorted({*axes.lengths.values()})
        apart = {name: length + 1 + 2 * n for n, (name, length) in enumerate(axes.lengths.items())}
        alike = {name: n + 1 + 2 * lengths.index(n) for name, n in axes.lengths.items()}
        first = {
            length: size
            for size, name in reversed(axes.names.items())
            if (length := axes.lengths.get(name))
        }
        fits, fits_alike = self._made(axes, apart), self._made(axes, alike)
        for key in self.shaped:
            for dim, size in enumerate(shapes[key]):
                if not isinstance(size, sympy.Symbol) or size not in axes.names:
                    continue
                length = int(self.tensors[key].shape[dim])
                if fits_alike[key, dim] and not fits[key, dim] and first.get(length) != size:
                    kept[size] = first[length]
                elif not fits_alike[key, dim]:
                    kept[size] = sympy.Integer(length)
        return kept

    def _made(self, axes: TracedAxes, free: Mapping[str, int]) -> dict[Place, bool]:
        """Whether the file's function makes each length of its own inputs as it is asked to."""
        dims = dict(free)
        dims |= {name: int(Expression(text)(dims)) for name, text in axes.derived.items()}
        made = sizes_made(self.loaded, self.own_inputs(axes), dims)
        fits: dict[Place, bool] = {}
        for key in self.shaped:
            for dim, named in enumerate(axes.shapes[key]):
                wanted = dims[named] if isinstance(named, str) else named
                fits[key, dim] = made is not None and made[key][dim : dim + 1] == [wanted]
        return fits

    def _constructed(
        self, axes: TracedAxes, shapes: Mapping[str, list[sympy.Expr]], requires: Sequence[str]
    ) -> tuple[str, ...]:
        """Requirements by which lengths that only parameters have stay what they are, where they
        have to be multiples of that: with twice as many filters a depthwise convolution is another
        module."""
        given = {size for key in shapes if key.startswith("input.") for size in shapes[key]}
        said = set(requires)
        fixed: list[str] = []
        for size, name in axes.names.items():
            length = axes.lengths.get(name, 0)
            multiple = said & {f"{name} % {length} == 0", f"{name} >= {length}"}
            if multiple and length > 1 and size not in given and name not in axes.constants:
                fixed.append(f"{name} == {length}")
        return tuple(fixed)

    def own_inputs(self, axes: TracedAxes) -> ImportedInputs:
        """The request to the file where it makes some of its inputs itself."""
        keys = [f"input.{n}" for n in range(len(self.loaded.inputs))]
        return ImportedInputs(
            self.name,
            self.loaded.source,
            self.loaded.name,
            tuple(self.names[key] if key in self.shaped else "" for key in keys),
            {},
            {**axes.lengths, **self._derived_lengths(axes)},
            tuple(axes.shapes[key] for key in keys if key in self.tensors),
        )

    def _derived_lengths(self, axes: TracedAxes) -> dict[str, int]:
        return {
            name: int(Expression(text)(axes.lengths)) for name, text in axes.derived.items()
        }  # fmt: skip

    def of_graph(self, result: Exported) -> Traced:
        graph = result.program.graph
        nodes = self._placeholders(result)
        axes, requires = self._axes(result, nodes)
        last = next(node for node in graph.nodes if node.op == "output")
        returned = [one for one in tree_leaves(last.args) if isinstance(one, torch.fx.Node)]
        produced = [counting.shape_of(node) for node in returned[-len(self.outputs) :]]
        labels = {node: self.names[key] for key, node in nodes.items()}
        work = [counting.count(n, labels) for n in graph.nodes if n.op == "call_function"]
        flops = sympy.Add(*(one.flops for one in work))
        read = {labels[n.name]: counting.read_in_part(n) for n in graph.nodes if n.name in labels}
        reads = {name: axes.text(one) for name, one in read.items() if one is not None}
        return self._finished(
            axes,
            [
                axes.shape(one, self._output_name(n), f"output.{n}")
                for n, one in enumerate(produced)
            ],
            requires,
            how=result.how,
            flops=axes.count(flops),
            reads=reads,
            adversaries=(
                *self._adversaries(work),
                *odd_values.of(graph, labels, self._drawn_floats()),
            ),
            beside=_beside(graph, axes),
        )

    def _requires(self, guards: Sequence[Any], axes: TracedAxes) -> tuple[str, ...]:
        """But for what holds of the file's numbers alone: with others it is another module."""
        if not axes.lengths:
            return ()
        known = [guard.xreplace(axes.known) for guard in guards]
        found = symbols.requirements(known, axes.names, axes.lengths)
        fixed = {*axes.constants, *axes.moving}
        kept = [one for one in found if not Expression(one).names & fixed]
        steps = {name: step(self.call, name, length) for name, length in axes.constants.items()}
        return (*kept, *(f"{name} % {by} == 0" for name, by in steps.items() if by > 1))

    def of_call(self, why: str) -> Traced:
        """A description of an operator that torch cannot trace: a black box, of the file's
        sizes."""
        shapes = {key: symbols.sizes_of(one.shape) for key, one in self.tensors.items()}
        axes = TracedAxes(self, shapes, self._following(shapes))
        produced = [symbols.sizes_of(one.shape) for one in self.outputs]
        note = f"torch.export cannot trace it ({why}): its sizes are those of the file"
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            self.call.outputs()
        return self._finished(
            axes,
            [
                axes.shape(one, self._output_name(n), f"output.{n}")
                for n, one in enumerate(produced)
            ],
            (),
            how="no size",
            flops=axes.count(sympy.Integer(counter.get_total_flops())),
            reads={},
            adversaries=(),
            notes=(note,),
        )

    def _following(self, shapes: Mapping[str, list[sympy.Expr]]) -> Following:
        """The axes whose lengths follow from the file: it makes its inputs, or tracing saw long
        axes that never vary."""
        sizes = [size for shape in shapes.values() for size in shape]
        long = any(isinstance(size, sympy.Integer) and size >= _LONG for size in sizes)
        if not (long or self.shaped or self.pinned):
            return Following(self.moving)
        lengths = {length for one in self.tensors.values() for length in one.shape}
        known = following(self.call, lengths - {1})
        taken = {*self.names.values(), *(one.name for one in self.scalars.values()), self.name}
        found = {name: of for name, of in known.places.items() if name not in taken}
        return Following(found | self.moving)

    def _finished(
        self,
        axes: TracedAxes,
        shapes: Sequence[tuple[int | str, ...]],
        requires: tuple[str, ...],
        *,
        flops: str,
        notes: tuple[str, ...] = (),
        **found: Any,
    ) -> Traced:
        dtypes, of_outputs = self._dtypes()
        outputs = tuple(
            TracedTensor(self._output_name(n), shape, dtype)
            for n, (shape, dtype) in enumerate(zip(shapes, of_outputs, strict=True))
        )
        traced = Traced(
            name=self.name,
            operator=self.loaded.name,
            only=self.loaded.only,
            module=self.loaded.model is not None,
            axes=axes.lengths,
            derived=axes.derived,
            requires=requires,
            inputs=tuple(self._input(key, axes) for key in self.tensors),
            outputs=outputs,
            scalars=tuple(self.scalars.values()),
            arguments=self._arguments(),
            dtypes=dtypes,
            flops=flops if len(flops) <= _LONGEST else str(_number(flops, axes.lengths)),
            workloads={},
            changes_itself=self.changes_itself,
            constants=tuple(axes.constants),
            uniform=tuple(
                self.names[key] for key in self.tensors if self._origin(key).drawn == "rand"
            ),
            notes=(*notes, *self._notes(axes)),
            **found,
        )
        own = self.own_inputs(axes) if self.shaped else None
        return with_workloads(traced, self.call, axes.keyed, own)

    def _notes(self, axes: TracedAxes) -> list[str]:
        """Notes on what is not tried of the inputs that the file makes."""
        said: list[str] = []
        for key in self.shaped:
            name, shape = self.names[key], axes.shapes[key]
            said.append(f"{name} is as the file makes it: no other distribution is tried for it.")
        for key, name in self.names.items():
            shape = axes.shapes[key]
            if key.startswith("input.") and any(type(one) is int and one > 1 for one in shape):
                said.append(f"{name} is tried at the file's own lengths {list(shape)}.")
        return said

    def _adversaries(self, work: Sequence[counting.CountedWork]) -> tuple[str, ...]:
        """The adversarial inputs of all operations, and NaN and infinities where nothing is
        summed; none for inputs that the file makes."""
        own = {self.names[key] for key in self.tensors if key in self.shaped or self._is_table(key)}
        found = dict.fromkeys(text for one in work for text in one.adversaries)
        found = {text: None for text in found if not own & set(re.findall(r"\w+", text))}
        if not any(one.sums for one in work):
            found["special()"] = None
        floats = self._drawn_floats()
        if floats and any(one.steep for one in work):
            found[f"steep({', '.join(floats)})"] = None
        return tuple(found)

    def _drawn_floats(self) -> list[str]:
        """The arguments of floats that any values stand for."""
        return [
            self.names[key]
            for key, one in self.tensors.items()
            if key.startswith("input.") and key not in self.shaped and one.is_floating_point()
        ]

    def _output_name(self, number: int) -> str:
        taken = self.names.values()
        return identifier("y" if len(self.outputs) == 1 else f"y{number}", taken=taken)

    def _input(self, key: str, axes: TracedAxes) -> TracedTensor:
        example, name = self.tensors[key], self.names[key]
        dtype = CELL if example.dtype == self.cell else _dtype(example)
        origin = self._origin(key)
        within: tuple[int, int | str] | None = None
        if origin.within is not None and not example.is_floating_point() and dtype != "bool":
            low, high = origin.within
            counts = low == 0 and example.dtype in (torch.int32, torch.int64)
            within = (low, axes.named(high) if counts else high)
        path = key.partition(".")[2] if key.startswith("state.") else ""
        if key in self.shaped:
            return TracedTensor(name, axes.shapes[key], dtype, None, "", "own")
        return TracedTensor(name, axes.shapes[key], dtype, within, path, self._draws(key, example))

    def _origin(self, key: str) -> Origin:
        kind, _, number = key.partition(".")
        return self.loaded.origins[int(number)] if kind == "input" else Origin()

    def _is_table(self, key: str) -> bool:
        kind, _, path = key.partition(".")
        return kind == "state" and retracing.is_table(self.loaded.model, path)

    def _draws(self, key: str, example: torch.Tensor) -> Draws:
        kind, _, path = key.partition(".")
        if kind == "input" or self.loaded.model is None:
            return ""
        if self._is_table(key):
            return "own"
        owner = self.loaded.model.get_submodule(path.rpartition(".")[0])
        leaf = path.rpartition(".")[2]
        if leaf == "running_var":
            return "positive"
        if leaf == "weight" and "Norm" in type(owner).__name__:
            return "scale"
        floats = example.is_floating_point()
        return "fan_in" if floats and example.ndim > 1 and not leaf.endswith("bias") else ""

    def _scalars(self) -> dict[int, TracedScalar]:
        """Numbers of the inputs that leave all sizes as they are when they change."""
        found: dict[int, TracedScalar] = {}
        for number, value in enumerate(self.loaded.inputs):
            if isinstance(value, torch.Tensor):
                continue
            if not _is_plain(value):
                raise NotAnOperator(
                    f"{self.loaded.parameters[number]} is of {type(value).__name__}, expected a "
                    "tensor or a number; wrap the operator in a function of tensors"
                )
            if isinstance(value, bool | int | float) and self._is_free(number, value):
                dtype: Any = {bool: "bool", int: "int64", float: "float32"}[type(value)]
                taken = [*self.names.values(), *(one.name for one in found.values())]
                name = identifier(self.loaded.parameters[number], taken=taken)
                found[number] = TracedScalar(name, dtype, value)
        return found

    def _is_free(self, number: int, value: float | bool) -> bool:
        if isinstance(value, float):
            return True
        other = not value if isinstance(value, bool) else value + 1
        changed = list(self.loaded.inputs)
        changed[number] = other
        call = FakeCall(replace(self.loaded, inputs=changed), self.call.lifted)
        try:
            outputs = call.outputs()
        except Exception:  # noqa: BLE001 - of the file's own code
            return False
        return [one.shape for one in outputs] == [one.shape for one in self.outputs]

    def _arguments(self) -> tuple[Argument, ...]:
        return tuple(
            Argument(self.names[f"input.{n}"])
            if isinstance(value, torch.Tensor)
            else (
                Argument(self.scalars[n].name) if n in self.scalars else Argument("", repr(value))
            )
            for n, value in enumerate(self.loaded.inputs)
        )

    def _dtypes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The cells that it can be asked in, and of each output its dtype: the cell's where it
        follows that."""
        own = tuple(map(_dtype, self.outputs))
        seen: dict[str, tuple[str, ...]] = {}
        for dtype in FLOATS:
            try:
                outputs = self.call.outputs(dtype=getattr(torch, dtype))
            except Exception:  # noqa: BLE001 - of the file's own code, which fixes another dtype
                continue
            seen[dtype] = tuple(map(_dtype, outputs))
        if len(seen) < 2:
            cell = _dtype(torch.empty(0, dtype=self.cell))
            return (cell,), tuple(CELL if one == cell else one for one in own)
        follows = [all(seen[d][n] == d for d in seen) for n in range(len(own))]
        fixed = tuple(CELL if f else seen["float32"][n] for n, f in enumerate(follows))
        return tuple(seen), fixed


def _is_plain(value: object) -> bool:
    """Whether a file can say it as it is."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _number(flops: str, lengths: Mapping[str, int]) -> int:
    return int(Expression(flops)(lengths))


def _placeholder_values(result: Exported) -> dict[str, Any]:
    graph = result.program.graph
    return {n.name: n.meta.get("val") for n in graph.nodes if n.op == "placeholder"}


def _guards(values: Any, graph: torch.fx.Graph) -> list[object]:
    """The guards that tracing assumed, over the symbols that sizes are made of."""
    for value in [*values, *(node.meta.get("val") for node in graph.nodes)]:
        for length in getattr(value, "shape", ()):
            if isinstance(length, torch.SymInt):
                environment = length.node.shape_env
                return [environment.replace(guard.expr) for guard in environment.guards]
    return []


def _beside(graph: torch.fx.Graph, axes: TracedAxes) -> dict[str, tuple[int, ...]]:
    """Numbers that places along an axis are compared with, as those of a window's are."""
    found: dict[str, set[int]] = {}
    for node in graph.nodes:
        for number, size in counting.thresholds(node):
            name = axes.names.get(size)
            if name is not None:
                found.setdefault(name, set()).add(number)
    return {name: tuple(sorted(numbers)) for name, numbers in found.items()}
