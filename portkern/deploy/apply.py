"""``portkern.apply``: a library's operators in a user's model, and the sizes that it calls them
with."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from portkern import ops
from portkern.cells.shapes import Shape, check, write
from portkern.deploy.evidence import shape_of
from portkern.deploy.operators import Operator
from portkern.errors import ConfigError
from portkern.formats.exported import NoSuchForm
from portkern.ops.formulas import FORMULAS

if TYPE_CHECKING:
    import torch

    from portkern.deploy.package._report import Report


def apply(
    model: torch.nn.Module,
    *what: Any,
    record: str | Path | None = None,
    **options: Any,
) -> Report | Sequence[Shape]:
    """Replaces in a model what a library's operators compute faster, where they are equal on
    ``inputs``: ``apply(model, library, inputs)``. ``library`` is one that ``portkern export
    library`` wrote, imported or by its name; ``inputs`` a tensor, a tuple of arguments or a dict of
    named ones. The report says what was replaced, what not and why; its ``undo()`` takes it back.

    ``apply(model, inputs, record="shapes.jsonl")`` changes nothing: it writes the sizes at which
    the model calls operators, of which ``portkern matrix shapes=shapes.jsonl`` makes cells, and
    returns them.

    ``options`` are those of the library's own ``apply``: ``mode``, ``compiled``, ``every``. Raises
    ConfigError.
    """
    if record is not None:
        if len(what) != 1 or options:
            raise ConfigError(
                "Got record= with a library or options, expected apply(model, inputs, record=FILE)"
            )
        found = shapes(model, what[0])
        write(Path(record), found)
        return found
    if len(what) != 2:
        raise ConfigError(
            f"Got {len(what)} arguments beside the model, expected apply(model, library, inputs), "
            "or apply(model, inputs, record=FILE)"
        )
    try:
        made: Report = _library(what[0]).apply(model, what[1], **options)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return made


def _library(given: object) -> Any:
    """Raises ConfigError for what is not a library's name or module."""
    if isinstance(given, str) and given.isidentifier():
        try:
            given = importlib.import_module(given)
        except ImportError as error:
            raise ConfigError(
                f"Cannot import the library: {error}; install the wheel that 'portkern export "
                "library' wrote"
            ) from error
    if not isinstance(given, ModuleType) or not hasattr(given, "apply"):
        raise ConfigError(
            f"Got a library of {type(given).__name__}, expected one that 'portkern export library' "
            "wrote: a module, or its name"
        )
    return given


def shapes(model: torch.nn.Module, inputs: Any) -> list[Shape]:
    """The sizes at which a model calls operators, those of the most calls first. Raises
    ConfigError."""
    from portkern.deploy.package import _apply, _report, _sites

    try:
        given, named = _apply.arguments(inputs)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    calls: dict[str, tuple[Shape, int]] = {}
    for used in _sites.sites(model, given, named):
        if isinstance(used, _report.Kept):
            continue
        for site in used.sites:
            shape = _shape(site)
            if shape is not None:
                key = shape.model_dump_json()
                calls[key] = shape, calls.get(key, (shape, 0))[1] + used.calls
    found = [one.model_copy(update={"calls": count}) for one, count in calls.values()]
    if not found:
        raise ConfigError("The model calls nothing on these inputs that is one of the operators")
    return sorted(found, key=lambda one: -one.calls)


def _shape(site: Any) -> Shape | None:
    """The shape of a call; None for what no kernel could take."""
    from portkern.deploy.package._call import NoTrace

    if site.operator not in FORMULAS:
        return None
    try:
        said = shape_of(Operator.of(ops.load(site.operator), 0, "shapes"), site.arguments)
        made = None if said is None else Shape.model_validate(said)
        if made is not None:
            check(made)
    except (NoSuchForm, NoTrace, ConfigError):
        return None
    return made
