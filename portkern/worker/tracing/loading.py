"""A file's operator as Python has it: loaded, constructed and with inputs of the right sizes, which
hold nothing: all of it is done with fake tensors, and only a constructor that reads values is given
real ones."""

from __future__ import annotations

import dis
import inspect
import linecache
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch  # noqa: TID253 - imported where a file is traced, in a worker
from torch._subclasses.fake_tensor import (  # noqa: TID253
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.overrides import TorchFunctionMode  # noqa: TID253

from portkern.spec.from_torch.declaration import (
    ATTRIBUTE,
    OperatorDeclaration,
    example_of,
)
from portkern.spec.from_torch.source import with_sizes
from portkern.spec.imported import ImportedInputs
from portkern.worker.tracing.python_lengths import keep_symbols
from portkern.worker.tracing.resizing import Resized

GET_INPUTS, GET_ARGUMENTS, MODEL = "get_inputs", "get_init_inputs", "Model"
#: The function of MultiKernelBench where a problem is of several sizes.
GET_CASES = "get_input_groups"
#: What may be a file's operators, by name.
Candidates = dict[str, tuple[Any, OperatorDeclaration]]


class NotAnOperator(Exception):
    """The file is not one that an operator can be had from; says why. ``line`` of the file."""

    def __init__(self, problem: str, line: int = 0, operators: Sequence[str] = ()) -> None:
        super().__init__(problem)
        self.line, self.operators = line, tuple(operators)


@dataclass(frozen=True)
class Origin:
    """How the file made an example input."""

    drawn: str = ""  # the function of torch that made it
    within: tuple[int, int] | None = None
    shaped: bool = False


@dataclass
class Drawing(TorchFunctionMode):
    """Remembers by which function each tensor was made, and what became of it."""

    origins: dict[int, tuple[torch.Tensor, Origin]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        if isinstance(result, torch.Tensor):
            self._note(result, self._origin(name, args, kwargs, result))
        written = args[0] if args and _writes(name) else None
        if isinstance(written, torch.Tensor):
            for one in (written, written._base):
                if one is not None:
                    self._note(one, Origin(self.of(one).drawn, shaped=True))
        return result

    def _note(self, tensor: torch.Tensor, origin: Origin) -> None:
        self.origins[id(tensor)] = (tensor, origin)  # kept, so that its id stays its own

    def _origin(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, Any],
        result: torch.Tensor,
    ) -> Origin:
        if name == "randint":
            numbers = [one for one in args if isinstance(one, int)]
            low = kwargs.get("low", numbers[0] if len(numbers) > 1 else 0)
            high = kwargs.get("high", numbers[-1] if numbers else 0)
            return Origin(name, (int(low), int(high)))
        if name in _MADE or (name == "tensor" and result.ndim == 0):
            return Origin(name)
        sources = [one for one in args if isinstance(one, torch.Tensor)]
        known = self.origins.get(id(sources[0])) if sources else None
        if name in _CONVERTED and known is not None:
            return known[1]
        if result.dtype == torch.bool:
            return Origin("bool")
        return Origin(known[1].drawn if known else "", shaped=True)

    def of(self, tensor: torch.Tensor) -> Origin:
        known = self.origins.get(id(tensor))
        return known[1] if known else Origin(shaped=True)


def _writes(name: str) -> bool:
    """Whether a function changes values of its first argument, by torch's convention of names."""
    in_place = name.endswith("_") and not name.endswith("__") and name not in _CONVERTED
    return name == "__setitem__" or in_place


#: What any other values may stand in for, and what leaves values as they are.
_MADE = frozenset(
    """
    rand randn zeros ones empty full normal rand_like randn_like zeros_like ones_like empty_like
    full_like
    """.split()
)
_CONVERTED = frozenset(
    """
    to float half bfloat16 double long int contiguous cuda cpu requires_grad_ detach clone reshape
    view transpose permute unsqueeze squeeze pin_memory type t __get__ flatten expand
    """.split()
)


@dataclass
class LoadedOperator:
    """One operator: ``call`` is a function, or a constructed module in ``model``."""

    name: str
    call: Callable[..., object]
    model: torch.nn.Module | None
    inputs: list[object]
    origins: list[Origin]
    parameters: list[str]
    namespace: types.ModuleType
    fake: FakeTensorMode
    names: tuple[str, ...]
    source: str
    filename: str
    cases: list[list[object]]

    @property
    def only(self) -> bool:
        """Whether the file has no other."""
        return len(self.names) == 1


def state_of(loaded: LoadedOperator) -> dict[str, torch.Tensor]:
    """Parameters and buffers."""
    model = loaded.model
    return {} if model is None else dict((*model.named_parameters(), *model.named_buffers()))


@contextmanager
def naming(source: str, filename: str) -> Iterator[None]:
    """Tracebacks show the file's lines, which this process cannot read from disk."""
    lines = source.splitlines(keepends=True)
    linecache.cache[filename] = (len(source), None, lines, filename)
    yield


def execute(source: str, filename: str) -> types.ModuleType:
    """The file as a module. Raises whatever it raises."""
    module = types.ModuleType("portkern_operator_file")
    module.__file__ = filename
    sys.modules[module.__name__] = module  # where dataclasses look for what annotations name
    exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)
    return module


def load(source: str, filename: str, wanted: str, *, construct: bool = True) -> LoadedOperator:
    """Raises NotAnOperator, and what the file itself raises. Without ``construct`` for its inputs
    alone."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    module = _attempt(fake, lambda: execute(source, filename))
    keep_symbols(vars(module))
    found = _operators(module)
    drawing = Drawing()
    _, declaration = found.get(wanted) or next(iter(found.values()))
    with fake, drawing:
        inputs, cases = _cases(declaration)
    main = _main(found, inputs, fake)
    name = _chosen(main, wanted) if not wanted or wanted in main else _chosen(found, wanted)
    declared, declaration = found[name]
    model, call = None, declared
    if isinstance(declared, type) and construct:
        call = model = _attempt(fake, lambda: _constructed(declared, declaration.arguments))
        if _keeps_tensors(model):  # they are constants of the graph, which fake ones cannot be
            call = model = _constructed(declared, declaration.arguments)
    function = None if isinstance(declared, type) else declared
    taking = model.forward if model is not None else function
    return LoadedOperator(
        name,
        call,
        model,
        inputs,
        [drawing.of(one) if isinstance(one, torch.Tensor) else Origin() for one in inputs],
        _parameters(taking, len(inputs)) if taking is not None else [],
        module,
        fake,
        tuple(main if name in main else found),
        source,
        filename,
        cases,
    )


def _cases(declaration: OperatorDeclaration) -> tuple[list[object], list[list[object]]]:
    """The example, and the others."""
    several = declaration.cases() if declaration.cases else [declaration.inputs()]
    if not isinstance(several, Sequence) or not several:
        raise NotAnOperator(
            f"{GET_CASES}() returned {type(several).__name__}, expected lists of tensors"
        )
    made: list[list[object]] = []
    for given in several:
        listed = [given] if isinstance(given, torch.Tensor) else given
        if not isinstance(listed, Sequence) or isinstance(listed, str):
            raise NotAnOperator(
                f"{GET_INPUTS}() returned {type(listed).__name__}, expected a list of tensors"
            )
        made.append(list(listed))
    example = example_of(made)
    return list(example), [one for one in made if one is not example]


def drawn(asked: ImportedInputs, dims: Mapping[str, int], seed: int) -> list[torch.Tensor]:
    """The named inputs as the file makes them, with its numbers changed to ``dims``."""
    module = execute(with_sizes(asked.source, dims), f"{asked.name}.py")
    declared, declaration = _operators(module)[asked.operator]
    made: list[torch.Tensor] = []
    if any(asked.names):
        torch.manual_seed(seed)
        with Resized.to(asked, dims):
            given = declaration.inputs()
        several = [given] if isinstance(given, torch.Tensor) else list(given)
        named = zip(asked.names, several, strict=True)
        made += [one for name, one in named if name and isinstance(one, torch.Tensor)]
    if asked.state:
        buffers = dict(_constructed(declared, declaration.arguments).named_buffers())
        made += [buffers[path] for path in asked.state.values()]
    return made


def _attempt(fake: FakeTensorMode, work: Callable[[], object]) -> Any:
    """Does the work without values first, which needs no memory, and with values where somebody
    reads them."""
    try:
        with fake:
            return work()
    except (DataDependentOutputException, DynamicOutputShapeException):
        return work()


def _keeps_tensors(model: torch.nn.Module) -> bool:
    """Whether there are tensors that are neither parameters nor buffers."""
    return any(
        isinstance(one, torch.Tensor)
        for module in model.modules()
        for name, value in vars(module).items()
        if not name.startswith("_")
        for one in (value if isinstance(value, list | tuple) else [value])
    )


def _constructed(kind: Any, arguments: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    given = arguments() if callable(arguments) else arguments
    if isinstance(given, dict):
        model = kind(**given)
    else:
        model = kind(*given)
    if not isinstance(model, torch.nn.Module):
        raise NotAnOperator(f"{kind.__name__} is not a torch.nn.Module")
    return model


def _operators(module: types.ModuleType) -> Candidates:
    """The operators of a file by name: those that declare themselves, else what the conventions of
    functions say."""
    own = {
        name: value
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("__")
    }
    declared = {
        name: (value, declaration)
        for name, value in own.items()
        if isinstance(declaration := vars(value).get(ATTRIBUTE), OperatorDeclaration)
    }
    if declared:
        return declared
    inputs, cases = getattr(module, GET_INPUTS, None), getattr(module, GET_CASES, None)
    if not callable(inputs) and not callable(cases):
        raise NotAnOperator(
            f"has no {GET_INPUTS}() and no @portkern.operator; expected a function or a Model with "
            f"{GET_INPUTS}(), which returns example inputs"
        )
    arguments: Any = getattr(module, GET_ARGUMENTS, ())
    if callable(cases):
        declaration = OperatorDeclaration.of_cases(cases, arguments)
    else:
        assert callable(inputs)
        declaration = OperatorDeclaration(inputs, arguments)
    modules = {
        name: (value, declaration)
        for name, value in own.items()
        if isinstance(value, type) and issubclass(value, torch.nn.Module)
    }
    if MODEL in modules:
        return {MODEL: modules[MODEL]}
    functions = {
        name: (value, declaration)
        for name, value in own.items()
        if inspect.isfunction(value)
        and name not in (GET_INPUTS, GET_ARGUMENTS, GET_CASES)
        and not name.startswith("_")
    }
    if not functions and not modules:
        raise NotAnOperator(
            f"has {GET_INPUTS}() and nothing that takes the inputs; expected a function or a class "
            f"{MODEL}(torch.nn.Module)"
        )
    return functions | modules


def _main(found: Candidates, given: Sequence[object], fake: FakeTensorMode) -> Candidates:
    """Find those that are meant where nothing is chosen: all that declare themselves; by the
    conventions, of those that take what is ``given`` the functions that no other one calls, or the
    module that calls all of them, or where no function is left, the modules that none calls."""
    if any(ATTRIBUTE in vars(value) for value, _ in found.values()):
        return found
    able = {name: of for name, of in found.items() if _takes(of[0], len(given))}
    meant = {name: of for name, of in able.items() if not _is_driver(name, of[0])} or able or found
    functions = {name: of for name, of in meant.items() if not isinstance(of[0], type)}
    modules = {name: of for name, of in meant.items() if isinstance(of[0], type)}
    roots = _uncalled({name: of for name, of in modules.items() if _constructs(*of, fake)})
    covering = {name: of for name, of in roots.items() if functions.keys() <= _reached(name, found)}
    return covering or _uncalled(functions) or _uncalled(modules)


def _uncalled(found: Candidates) -> Candidates:
    """Find those that no other one calls by name; all where each is called."""
    called = {name for other, (value, _) in found.items() for name in _used(value) if name != other}
    return {name: of for name, of in found.items() if name not in called} or found


def _reached(name: str, found: Candidates) -> set[str]:
    """Find what one calls, and what that calls."""
    reached, waiting = {name}, [name]
    while waiting:
        new = {*_used(found[waiting.pop()][0])} & found.keys() - reached
        reached |= new
        waiting += new
    return reached


def _used(value: object) -> Iterator[str]:
    yield from names_read(value)
    if isinstance(value, type):
        yield from (base.__name__ for base in value.__mro__[1:])


def _is_driver(name: str, value: object) -> bool:
    """Whether something runs or tests an operator: by its name, or as it asks for inputs itself."""
    asks = {*names_read(value)} & {GET_INPUTS, GET_CASES}
    return bool(asks) or name in ("main", "test") or name.startswith("test_")


def _takes(value: Any, count: int) -> bool:
    """Whether a function, or a module's ``forward``, may be called with so many arguments."""
    is_module = isinstance(value, type)
    if is_module and value.forward is torch.nn.Module.forward:
        return False
    try:
        inspect.signature(value.forward if is_module else value).bind(*[None] * (count + is_module))
    except TypeError:
        return False
    return True


def _constructs(kind: Any, declaration: OperatorDeclaration, fake: FakeTensorMode) -> bool:
    """Whether a module's constructor takes the file's arguments."""
    arguments: Any = declaration.arguments
    try:
        with fake:
            given = arguments() if callable(arguments) else arguments
        many, named = ((), given) if isinstance(given, dict) else (given, {})
        inspect.signature(kind).bind(*many, **named)
    except Exception:  # noqa: BLE001 - of the file's own code, which may be of something else
        return False
    return True


def names_read(value: object) -> Iterator[str]:
    """The file's own names that a function reads, or a class's methods, with what is defined
    within."""
    functions = vars(value).values() if isinstance(value, type) else [value]
    waiting = [one.__code__ for one in functions if inspect.isfunction(one)]
    while waiting:
        code = waiting.pop()
        yield from (str(i.argval) for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL")
        waiting += [one for one in code.co_consts if isinstance(one, types.CodeType)]


def _chosen(found: Candidates, wanted: str) -> str:
    if wanted and wanted not in found:
        raise NotAnOperator(
            f"has no operator {wanted!r}; it has {', '.join(sorted(found))}", operators=[*found]
        )
    if not wanted and len(found) > 1:
        raise NotAnOperator(
            f"has several operators: {', '.join(sorted(found))}; choose one, as FILE.py:NAME",
            operators=[*found],
        )
    return wanted or next(iter(found))


def _parameters(function: Callable[..., object], count: int) -> list[str]:
    """The names of the function's first ``count`` positional arguments."""
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}{n}" for n in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    if len(names) < count:
        raise NotAnOperator(
            f"{GET_INPUTS}() returns {count} inputs, the operator takes {len(names)}"
        )
    return names[:count]
