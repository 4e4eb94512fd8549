"""The kernels that ship with portkern: ``backends/<name>/kernels/<op>.<suffix>``, and where one
source serves several backends, ``kernels`` of what they share (:attr:`Backend.shared`)."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from portkern.errors import ConfigError, no_such
from portkern.spec import companions, kernel_forms
from portkern.spec.backend import Backend
from portkern.spec.candidate import Candidate
from portkern.spec.companions import Companions
from portkern.spec.kernel_forms import KernelForm
from portkern.spec.module_form import CLASS, defines_class
from portkern.spec.op import Signature
from portkern.spec.safe_name import real_path
from portkern.spec.target import Target

#: The folder of calibration kernels, and what they are called in records.
CALIBRATION = "calibration"
#: ``#define UNROLL 8  // knob: 1 2 4 8 (hip: 4)``: in one language it starts from another value.
_EXCEPTION = re.compile(
    r"^(?P<head>#define[ \t]+\w+[ \t]+)(?P<value>-?\d+)(?P<tail>[ \t]*// knob:[-\d \t]*\d)"
    r"[ \t]*\((?P<language>[\w+]+): (?P<other>-?\d+)\)[ \t]*$",
    re.MULTILINE,
)


def candidates(op: str, backend: Backend, target: Target | None = None) -> list[Candidate]:
    """One candidate per language in which the backend has a kernel for ``op``: its own, else one
    that it shares. ``target``: only in those that it takes, dialects among them."""
    shipped = in_all_languages(op, backend)
    if target is None:
        return [one for one in shipped if one.language not in backend.dialects]
    taken = backend.languages_on(target)
    return [one for one in shipped if not backend.dialects or one.language in taken]


def calibration(op: str, backend: Backend) -> Candidate | None:
    """The backend's calibration kernel, which computes ``op``; None for a backend that has none."""
    kept = in_all_languages(op, backend, CALIBRATION)
    return replace(kept[0], variant=CALIBRATION) if kept else None


def in_all_languages(op: str, backend: Backend, folder: str = "kernels") -> list[Candidate]:
    """One candidate per language and dialect in which the backend has a kernel for ``op``, of
    those in ``folder``."""
    package = importlib.import_module(type(backend).__module__).__name__
    homes = [(package, backend.languages), *backend.shared.items()]
    homes += [
        (home, dict.fromkeys(backend.languages, language))
        for language, home in backend.dialects.items()
    ]
    sources: dict[str, str] = {}
    for home, languages in homes:
        for suffix, language in languages.items():
            file = files(home) / folder / f"{op}{suffix}"
            if language not in sources and file.is_file():
                sources[language] = of_one(file.read_text(encoding="utf-8"), language)
    return [
        Candidate(op, backend.name, language, source, entry=op, style=backend.style)
        for language, source in sources.items()
    ]


def from_file(path: Path, *, op: str, backend: Backend, entry: str | None = None) -> Candidate:
    """A candidate read from anywhere; its suffix says the language, and headers in its folder are
    its own. A Python file with a class ModelNew is one of style ``module``. Raises ConfigError."""
    languages = languages_of(backend)
    if path.suffix == ".py" and defines_class(source := companions.read_text(path)):
        return of_module(source, op=op, backend=backend, author=f"file:{path.name}")
    if path.suffix not in languages:
        raise no_such(f"{backend.name} source suffix", path.suffix, languages)
    source = companions.read_text(path)
    language = backend.language_of(path.suffix, source)
    return Candidate(
        op,
        backend.name,
        language,
        of_one(source, language),
        entry or op,
        author=f"file:{path.name}",
        style=backend.style,
        companions=companions.gather(path, source, root=real_path(path).parent, strict=False),
    )


def of_module(source: str, *, op: str, backend: Backend, author: str) -> Candidate:
    """A candidate made from a source that defines ModelNew. Raises ConfigError for a backend
    that takes none."""
    if not backend.modules:
        raise ConfigError(
            f"Got a class {CLASS} for {backend.name}, expected one for triton, cuda, hip or cpu"
        )
    return Candidate(
        op, backend.name, backend.modules, source, CLASS, author=author, style="module"
    )


def in_its_form(made: Candidate, signature: Signature, backend: Backend) -> Candidate:
    """``made``, called as its source is to be called where that is not portkern's own form: a class
    ModelNew, an extension of PyTorch, a function that returns tensors."""
    form = form_of(made, signature)
    if form.kind == "returns":
        return replace(made, entry=form.name, style="return")
    if form.kind not in ("module", "extension") or not backend.modules:
        return made
    wrapped = form.kind == "extension"
    source = kernel_forms.extension_module(made.source, form.name) if wrapped else made.source
    return replace(
        made,
        source=source,
        language=backend.modules,
        entry=CLASS,
        style="module",
        companions=Companions(),
    )


def form_of(made: Candidate, signature: Signature) -> KernelForm:
    """The form of the kernel in a source that stands alone."""
    scalars = tuple(scalar.name for scalar in signature.scalars)
    return kernel_forms.of(made.source, made.entry, made.language, len(signature.inputs), scalars)


def misfit(made: Candidate, signature: Signature, backend: Backend) -> str:
    """A message that says what the source holds in place of what would be called, and what was
    expected; empty where the two fit, or where that cannot be read from the text."""
    if made.style == "module" or made.companions:
        return ""
    form = form_of(made, signature)
    if form.kind == "entry" or (form.kind == "returns" and made.style == "return"):
        return ""
    if form.kind == "returns" and form.name == made.entry:
        return ""  # what it is given decides, which the text may hide
    expected = kernel_forms.wanted(made.entry, made.language)
    return f"the file holds {form.words}; {expected}: {_head(made, signature, backend)}"


def _head(made: Candidate, signature: Signature, backend: Backend) -> str:
    """The head of the function that ``made`` should define."""
    if made.style == "return":
        taken = [one.name for one in signature.inputs] + [one.name for one in signature.scalars]
        given = [one.name for one in signature.outputs]
        return f"def {made.entry}({', '.join(taken)}) -> {', '.join(given)}"
    return backend.declaration(replace(signature, name=made.entry), made.language)


def languages_of(backend: Backend) -> dict[str, str]:
    """The languages by suffix, with those of sources that the backend shares."""
    known = (*backend.shared.values(), backend.languages)
    return {suffix: language for suffixes in known for suffix, language in suffixes.items()}


def of_one(source: str, language: str) -> str:
    """A source of several languages as that of one, whose values its knobs take."""

    def settle(knob: re.Match[str]) -> str:
        value = knob["other" if knob["language"] == language else "value"]
        return f"{knob['head']}{value}{knob['tail']}"

    return _EXCEPTION.sub(settle, source)
