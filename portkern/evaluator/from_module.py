"""A live module or function becomes a PyTorch file: what torch.export makes of it, as a program
that a confined worker can load without the code that it came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkern.errors import ConfigError
from portkern.evaluator import from_torch
from portkern.records import atomic_write
from portkern.spec.from_torch.names import operator_name
from portkern.spec.op import Op

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

#: The class that a file's operator is.
MODEL = "Model"
#: Elements of a buffer or a constant that a file spells out.
SPELLED_OUT = 4096
_HEAD = '"""What torch.export made of {name}; sizes are those of the example inputs."""\n'
_OURS = re.compile(r'"""What torch\.export made of ')
#: What torch.fx writes without saying where it is from.
_IMPORTS = (
    (r"\battrgetter\(", "from operator import attrgetter"),
    (r"\bdevice\(", "from torch import device"),
    (r"\binf\b", "from math import inf"),
    (r"\bnan\b", "from math import nan"),
)
#: Operations of a graph that only look, and what frees a name.
_CHECKS = re.compile(r"_assert|_guards_fn|sym_constrain")
_FREED = re.compile(r";  [\w = ]+ = None$")
_ONE_OUTPUT = re.compile(r"return \((\w+),\)")


def load(
    module: torch.nn.Module | Callable[..., Any],
    inputs: Sequence[object],
    *,
    name: str = "",
    folder: str | Path = "operators",
) -> Op:
    """The operator that ``module`` is, called with ``inputs``: tensors of example sizes, which may
    be on any device, and Python's own values, which are fixed.

    Writes ``folder/name.py`` and the sheet beside it. Parameters and buffers become inputs of the
    operator; their values are the evaluator's, not the module's. ``name`` is the class's or the
    function's if it is empty. Only what is returned is an output: what a module in training leaves
    in its buffers is none. Raises ConfigError for what torch.export cannot trace, and where a file
    of that name is not one that this function wrote.
    """
    title = _title(module)
    path = Path(folder) / f"{operator_name(name or title)}.py"
    text = source(module, inputs)
    try:
        before = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        before = ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read {path}: {error}") from error
    if before and not _OURS.match(before):
        raise ConfigError(f"{path} is a file of another origin; choose another name= or folder=")
    if before != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write.write(path, text)
    return from_torch.load(str(path))


def source(module: torch.nn.Module | Callable[..., object], inputs: Sequence[Any]) -> str:
    """The file's text. Raises ConfigError."""
    exported = _exported(module, inputs)
    _check(exported, _title(module))
    program = _Program.of(exported)
    init = ["super().__init__()", *_state(exported, module, program.state)]
    examples = ", ".join(_example(value) for value in inputs if _is_tensor(value))
    parts = [
        _HEAD.format(name=_title(module)),
        *program.imports,
        *_owners(module, program.state),
        "",
        "",
        f"class {MODEL}(torch.nn.Module):",
        *_indented(1, ["def __init__(self) -> None:", *_indented(1, init), "", *program.forward]),
        "",
        "",
        "def get_inputs():",
        *_indented(1, [f"return [{examples}]"]),
    ]
    return "\n".join(parts) + "\n"


def _indented(depth: int, lines: Iterable[str]) -> list[str]:
    return [" " * 4 * depth + line if line else "" for line in lines]


def _title(module: object) -> str:
    named = module if hasattr(module, "__name__") else type(module)
    return str(getattr(named, "__name__", "operator"))


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _exported(
    module: torch.nn.Module | Callable[..., object], inputs: Sequence[Any]
) -> ExportedProgram:
    """The module exported with all sizes of inputs symbolic, or with none where that cannot be."""
    import torch

    if not any(map(_is_tensor, inputs)):
        raise ConfigError("The example inputs have no tensor, expected at least one")
    called = module if isinstance(module, torch.nn.Module) else _as_module(module)
    problem: Exception | None = None
    for kind in (torch.export.Dim.AUTO, torch.export.Dim.STATIC):
        shapes = tuple(
            dict.fromkeys(range(value.ndim), kind) if _is_tensor(value) else None
            for value in inputs
        )
        try:
            with torch.no_grad():
                return torch.export.export(
                    called, tuple(inputs), dynamic_shapes=shapes, strict=False
                )
        except Exception as error:  # noqa: BLE001 - others' code, through torch's tracer
            problem = problem or error
    said = " ".join(str(problem).split())[:300]
    raise ConfigError(
        f"torch.export cannot trace {_title(module)}: {type(problem).__name__}: {said}"
    )


def _as_module(function: Callable[..., object]) -> torch.nn.Module:
    """A module whose forward is the function itself, so that the graph has its parameters'
    names."""
    import torch

    module = torch.nn.Module()
    module.forward = function
    return module


def _check(program: ExportedProgram, title: str) -> None:
    """Raises ConfigError for what one forward pass in a file cannot be."""
    from torch.export.graph_signature import InputKind

    for given in program.graph_signature.input_specs:
        if given.kind in (InputKind.CUSTOM_OBJ, InputKind.TOKEN):
            raise ConfigError(f"{title} takes {given.target or given.kind.name}, expected tensors")
    for node in program.graph.nodes:
        if node.op == "get_attr":
            raise ConfigError(
                f"{title} has control flow ({node.target}), expected the same operations for all "
                "values of its inputs"
            )


@dataclass(frozen=True)
class _Program:
    """``state``: what of the module the graph takes, and what it is called there."""

    lines: Sequence[str]
    parameters: Sequence[str]
    state: Mapping[str, str]

    @classmethod
    def of(cls, program: ExportedProgram) -> _Program:
        from torch.export.graph_signature import InputKind, TensorArgument

        graph = program.graph_module.graph
        for node in reversed(list(graph.nodes)):
            if not node.users and _CHECKS.search(str(node.target)):
                graph.erase_node(node)
        code = graph.python_code("self").src.splitlines()
        start = next(n for n, line in enumerate(code) if line.startswith("def forward"))
        lines = [_FREED.sub("", line).strip() for line in code[start + 1 :] if line.strip()]
        lines[-1] = _ONE_OUTPUT.sub(r"return \1", lines[-1])
        specs = [
            given
            for given in program.graph_signature.input_specs
            if isinstance(given.arg, TensorArgument)
        ]
        users = {node.name: bool(node.users) for node in graph.nodes if node.op == "placeholder"}
        return cls(
            lines,
            [given.arg.name for given in specs if given.kind is InputKind.USER_INPUT],
            {
                str(given.target): given.arg.name
                for given in specs
                if given.kind is not InputKind.USER_INPUT and users[given.arg.name]
            },
        )

    @property
    def forward(self) -> list[str]:
        taken = [f"{name} = attrgetter({path!r})(self)" for path, name in self.state.items()]
        head = f"def forward({', '.join(['self', *self.parameters])}):"
        return [head, *_indented(1, [*taken, *self.lines])]

    @property
    def imports(self) -> list[str]:
        text = "\n".join(self.forward)
        return ["import torch", *(line for word, line in _IMPORTS if re.search(word, text))]


def _state(program: ExportedProgram, module: object, paths: Iterable[str]) -> Iterator[str]:
    """Statements that make the submodules that own it, and the state itself."""
    made = {""}
    for path in paths:
        parents = path.split(".")[:-1]
        for depth, name in enumerate(parents):
            owner, inner = ".".join(parents[:depth]), ".".join(parents[: depth + 1])
            if inner not in made:
                kind = _class_name(module, inner)
                yield f"self.get_submodule({owner!r}).add_module({name!r}, {kind}())"
                made.add(inner)
        yield f"self.get_submodule({'.'.join(parents)!r}).{_assigned(program, path)}"


def _assigned(program: ExportedProgram, path: str) -> str:
    leaf = path.rpartition(".")[2]
    if path in program.graph_signature.parameters:
        like = program.state_dict[path]
        return f"{leaf} = torch.nn.Parameter(torch.ones({_shape_and_dtype(like)}))"
    value = program.state_dict.get(path, program.constants.get(path))
    if leaf in ("running_mean", "running_var"):
        return f"register_buffer({leaf!r}, torch.ones({_shape_and_dtype(value)}))"
    if path not in program.graph_signature.buffers:
        return f"{leaf} = {_spelled_out(value, path)}"
    return f"register_buffer({leaf!r}, {_spelled_out(value, path)})"


def _spelled_out(value: torch.Tensor, path: str) -> str:
    if value.numel() > SPELLED_OUT:
        raise ConfigError(
            f"{path} is a buffer or a constant of {value.numel()} elements, expected at most "
            f"{SPELLED_OUT}; make it an input of the module"
        )
    return f"torch.tensor({value.tolist()}, dtype={value.dtype}).reshape({tuple(value.shape)})"


def _shape_and_dtype(like: torch.Tensor) -> str:
    import torch

    dtype = "" if like.dtype == torch.float32 else f", dtype={like.dtype}"
    return f"{tuple(like.shape)}{dtype}"


def _class_name(module: object, path: str) -> str:
    import torch

    assert isinstance(module, torch.nn.Module)
    name = re.sub(r"\W", "_", type(module.get_submodule(path)).__name__)
    return f"{name}_" if name == MODEL else name


def _owners(module: object, paths: Iterable[str]) -> Iterator[str]:
    """Classes of the names that the module's own have: a scale is known by its norm's."""
    parents = {
        ".".join(path.split(".")[:depth])
        for path in paths
        for depth in range(1, path.count(".") + 1)
    }
    for name in sorted({_class_name(module, path) for path in parents}):
        yield from ("", "", f"class {name}(torch.nn.Module):", "    pass")


def _example(value: torch.Tensor) -> str:
    """A call that makes such a tensor: of its sizes and dtype, within its bounds."""
    import torch

    shape = _shape_and_dtype(value)
    low, high = (float(value.min()), float(value.max())) if value.numel() else (0.0, 0.0)
    if value.dtype == torch.bool:
        return f"torch.randint(0, 2, {tuple(value.shape)}).bool()"
    if not value.is_floating_point():
        return (
            f"torch.randint({int(low)}, {int(high) + 1}, {tuple(value.shape)}, dtype={value.dtype})"
        )
    within = value.numel() > 1 and 0 <= low and high <= 1
    return f"torch.{'rand' if within else 'randn'}({shape})"
