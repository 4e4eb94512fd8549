"""torch.export with as many sizes symbolic as it can be had with."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch  # noqa: TID253 - imported where a file is traced, in a worker
from torch.export import Dim, ExportedProgram, export  # noqa: TID253
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: TID253

from portkern.spec.from_torch.traced import How
from portkern.worker.tracing.recurrent import Recurrent

#: The most tensors with symbolic sizes: of more, tracing takes minutes and says little.
MOST_SYMBOLIC = 24
#: No limit that a slow machine meets, which would see another operator than a fast one: hangs only.
HANGS_AFTER_S = 400


class Lifted(torch.nn.Module):
    """A module with its parameters and buffers as arguments. It is not a submodule, or they would
    be this one's state; a function has none. What a call leaves in plain attributes is taken out
    again: it is of that call's tensors. ``changed``: there was such."""

    def __init__(self, call: Callable[..., object], model: torch.nn.Module | None) -> None:
        super().__init__()
        self.__dict__["call"], self.__dict__["model"] = call, model
        self.__dict__["changed"] = False

    def forward(self, state: Mapping[str, torch.Tensor], inputs: Sequence[object]) -> object:
        model = self.__dict__["model"]
        if model is None:
            with Recurrent():
                return self.__dict__["call"](*inputs)
        before = [(module, _attributes(module)) for module in model.modules()]
        made: dict[int, torch.Tensor] = {}
        own = [_with_copies(module, attributes, made) for module, attributes in before]
        try:
            with Recurrent():
                return torch.func.functional_call(model, dict(state), tuple(inputs))
        finally:
            for (module, attributes), copies in zip(before, own, strict=True):
                self.__dict__["changed"] |= _restored(module, attributes, copies)


def _attributes(module: torch.nn.Module) -> dict[str, object]:
    """The plain ones."""
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def _with_copies(
    module: torch.nn.Module, attributes: Mapping[str, object], made: dict[int, torch.Tensor]
) -> dict[str, tuple[object, int]]:
    """Puts copies of tensors into the place of plain attributes, as torch exports no writes into
    them; with the version that each has. ``made``: by what they are copies of, as modules share
    some."""
    copies = dict(attributes)
    for name, value in attributes.items():
        if isinstance(value, torch.Tensor):
            if id(value) not in made:
                made[id(value)] = value.clone()
            copies[name] = made[id(value)]
    module.__dict__.update(copies)
    return {name: (value, getattr(value, "_version", 0)) for name, value in copies.items()}


def _restored(
    module: torch.nn.Module,
    attributes: Mapping[str, object],
    copies: Mapping[str, tuple[object, int]],
) -> bool:
    """Whether a call has changed the attributes that it was given ``copies`` of."""
    now = _attributes(module)
    changed = {*now} != {*copies} or any(
        now[key] is not value or getattr(value, "_version", 0) != version
        for key, (value, version) in copies.items()
    )
    for name in now:
        del module.__dict__[name]
    module.__dict__.update(attributes)
    return changed


@dataclass(frozen=True)
class Exported:
    """``state``: the names of what the program takes before the inputs."""

    program: ExportedProgram
    how: How
    state: tuple[str, ...]


def exported(
    call: Callable[..., object],
    model: torch.nn.Module | None,
    fixed: Mapping[str, torch.Tensor],
    lifted: Mapping[str, torch.Tensor],
    inputs: Sequence[object],
    tables: Collection[str] = (),
) -> Exported | Exception:
    """Or why it cannot be had even with the sizes of the file. ``fixed`` and ``lifted``: the
    module's state that is not an input of the operator's, and that which is; ``tables`` of it are
    as large as the constructor makes them."""
    state = {**fixed, **lifted}
    error: Exception = TimeoutError("torch.export did not come to an end")
    for how in _ways(len(lifted) + len(inputs)):
        shapes = (
            {
                name: _dims(value, how == "all sizes" and name in lifted and name not in tables)
                for name, value in state.items()
            },
            tuple(_dims(value, how != "no size") for value in inputs),
        )
        try:
            # Attention's fused forms do not say which of its lengths must be equal.
            with _guarded(), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
                module = Lifted(call, model)
                given = (dict(state), tuple(inputs))
                program = export(module, given, dynamic_shapes=shapes, strict=False)
                return Exported(program, how, tuple(state))
        except Exception as problem:  # noqa: BLE001 - of others' code, through torch's tracer
            error = problem
    return error


def _ways(tensors: int) -> list[How]:
    every: list[How] = ["all sizes", "sizes of inputs", "no size"]
    return every if tensors <= MOST_SYMBOLIC else every[1:]


def _dims(value: object, free: bool) -> dict[int, object] | None:
    if not isinstance(value, torch.Tensor):
        return None
    return dict.fromkeys(range(value.ndim), Dim.AUTO if free else Dim.STATIC)


@contextmanager
def _guarded() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError(f"torch.export did not come to an end in {HANGS_AFTER_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANGS_AFTER_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
