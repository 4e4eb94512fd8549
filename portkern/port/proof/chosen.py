"""Which instance of a kernel's template a case is of."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portkern.cuda_source.syntax import LaunchText, Parameter, SourceKernel
from portkern.port.proof.element import element_of
from portkern.port.proof.expression import Names
from portkern.port.proof.instances import Instance, declared_types, deduced, is_type
from portkern.port.proof.outcome import Refused
from portkern.port.proof.texts import SourceTexts

_BLOCK = 256
#: What a type is guessed to be: indices cannot be floats.
_TYPES = ("float", "int")
_VALUE = re.compile(r"-?\d+|true|false")


@dataclass(frozen=True)
class Chosen:
    """Arguments of a kernel's template. ``bound``: what names of the launching function are with
    them; ``at``: the number of the launch that has them. ``is_guess``: nothing here launches it."""

    template: tuple[str, ...]
    bound: tuple[tuple[str, str], ...] = ()
    at: int = -1
    is_guess: bool = False


def templates(kernel: SourceKernel, texts: SourceTexts) -> list[Chosen] | Refused:
    """The arguments to give the kernel's template: each instance that the source has, the
    smallest first; guesses where it has none."""
    packs = [p for p in kernel.template if "..." in p.type or p.type.startswith("template")]
    if packs:
        return Refused(f"its template has the parameter {packs[0].type} {packs[0].name}")
    chosen = [one for item in _launches(kernel, texts) for one in _of_launch(kernel, item, texts)]
    if not chosen:
        named = texts.instances.named(kernel.name, kernel.template)
        chosen = _with_types(kernel, texts, named or [Instance(())], {}, -1, is_guess=not named)
    return sorted(dict.fromkeys(chosen), key=lambda one: Instance(one.template).size)


def _launches(kernel: SourceKernel, texts: SourceTexts) -> list[int]:
    """Which launches, one of each shape and instance: with as many arguments as there are
    parameters, if any is so. A macro's body whose instance is not known is looked at where the
    macro is used."""
    own = texts.launches(kernel.name)
    every = {n: _shape(kernel, *own[n], texts) for n in range(len(own))}
    used = {one.macro for one, _ in own if one.function != one.macro}
    outside = [n for n, (one, _) in enumerate(own) if one.function not in used or every[n].is_known]
    whole = [n for n in outside if len(own[n][0].arguments) == len(kernel.parameters)]
    return sorted({every[n]: n for n in reversed(whole or outside)}.values())


@dataclass(frozen=True)
class _Shape:
    """The reasons to look at a launch beside those before. Where arguments are spelled alike, the
    templates of two functions may still have other types: so there are the ``instances``; and names
    in ``block`` and ``shared`` may stand for something else, as ``names`` says."""

    given: tuple[str, ...]
    shown: tuple[tuple[str, str], ...]
    instances: tuple[Instance, ...]
    block: str
    shared: str
    names: tuple[tuple[str, str], ...]
    is_known: bool


def _shape(kernel: SourceKernel, launch: LaunchText, offset: int, texts: SourceTexts) -> _Shape:
    given, shown = _arguments(kernel, launch, offset, texts)
    instances = tuple(texts.instances.launched(kernel.name, kernel.template, given, offset))
    is_known = not kernel.template or bool(instances and (given or shown))
    names = Names(texts.whole, {}).reached(f"{launch.block}, {launch.shared}", offset)
    own = tuple(sorted(names.items()))
    return _Shape(given, shown, instances, launch.block, launch.shared, own, is_known)


def _arguments(
    kernel: SourceKernel, launch: LaunchText, offset: int, texts: SourceTexts
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The arguments of the template that a launch spells, or shows by its own; by name, those that
    only its own arguments say."""
    given = launch.template_arguments or _shown_types(kernel, launch, texts, offset)
    shown = deduced(kernel.template, kernel.parameters, launch.arguments)
    return given, tuple(shown.items())


def _of_launch(kernel: SourceKernel, at: int, texts: SourceTexts) -> list[Chosen]:
    launch, offset = texts.launches(kernel.name)[at]
    arguments, named = _arguments(kernel, launch, offset, texts)
    found = texts.instances.launched(kernel.name, kernel.template, arguments, offset)
    shown = dict(named)
    missing = [
        p for p in kernel.template[len(arguments) :] if not shown.get(p.name) and not _default(p)
    ]
    guess = bool(missing) or (bool(arguments) and not found)
    guess = guess or not texts.instances.are_all(kernel.name, offset)
    if guess:
        found = found or texts.instances.named(kernel.name, kernel.template)
    return _with_types(kernel, texts, found or [Instance(())], shown, at, is_guess=guess)


def _with_types(
    kernel: SourceKernel,
    texts: SourceTexts,
    found: Sequence[Instance],
    shown: Mapping[str, str],
    at: int,
    *,
    is_guess: bool,
) -> list[Chosen]:
    """The choices with each type tried for a parameter whose type nothing tells."""
    types = dict.fromkeys([*_TYPES, *texts.specialised])
    return list(
        dict.fromkeys(
            Chosen(_filled(kernel, one.arguments, shown, type_), one.bound, at, is_guess)
            for one in found
            for type_ in types
        )
    )


def number_of(choice: int, count: int) -> int:
    """The smallest first, then the largest, then the others."""
    return -choice % count


def _shown_types(
    kernel: SourceKernel, launch: LaunchText, texts: SourceTexts, offset: int
) -> tuple[str, ...]:
    """The first arguments of its template, as far as the launch shows them by its own."""
    types = declared_types(
        kernel.template,
        kernel.parameters,
        launch.arguments,
        lambda name: texts.instances.type_of(name, offset),
    )
    names = itertools.takewhile(types.__contains__, (p.name for p in kernel.template))
    return tuple(types[name] for name in names)


def launch_of(kernel: SourceKernel, texts: SourceTexts, at: int) -> tuple[LaunchText | None, int]:
    """The one of that number, and where it stands; for -1 none, behind all of the text."""
    return texts.launches(kernel.name)[at] if at >= 0 else (None, len(texts.whole))


def _filled(
    kernel: SourceKernel, given: Sequence[str], shown: Mapping[str, str], type_: str = _TYPES[0]
) -> tuple[str, ...]:
    """Arguments for the whole template: what is not given is shown by the launch, or the template's
    own, or guessed, types as ``type_``."""
    others = (
        shown.get(p.name) or _default(p) or (type_ if is_type(p) else _guess(p))
        for p in kernel.template[len(given) :]
    )
    return (*given, *others)


def _default(parameter: Parameter) -> str:
    """The default of a parameter, unless it follows from other parameters."""
    text = parameter.default
    known = element_of(text, {}) if is_type(parameter) else _VALUE.fullmatch(text)
    return text if known is not None else ""


def _guess(parameter: Parameter) -> str:
    return "true" if "bool" in parameter.type.split() else str(_constant(parameter.name))


def _constant(name: str) -> int:
    lowered = name.lower()
    if "warp" in lowered:
        return 32
    if "tile" in lowered or lowered.endswith(("dim", "width")):
        return 16
    if "block" in lowered or "thread" in lowered or lowered in ("bs", "n"):
        return _BLOCK
    return 4
