"""CUDA source as HIP, and the way back.

Names, types and headers change by a table (:mod:`.names`), warp functions by the rule of
:mod:`.warps`, what else differs by :mod:`.device` and :mod:`.inline_ptx`. Edits are of tokens:
strings, comments and names of the user's own stay as they are, and so do launches, which hipcc
takes. Everything stays on its line, but for includes that HIP needs where no blank line is there to
take them.

What cannot be decided gets no edit; the lint reads the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from portkern.cuda_source.lexer import SourceCode
from portkern.port.hazard import Hazard
from portkern.port.translate import single_source
from portkern.port.translate.back import translate_back
from portkern.port.translate.chevrons import closed_up
from portkern.port.translate.context import NOTHING_AROUND, Context
from portkern.port.translate.dependent import translate_dependent
from portkern.port.translate.device import (
    DEVICE_FUNCTIONS,
    translate_conditions,
    translate_device,
)
from portkern.port.translate.draft import Draft, DraftChange
from portkern.port.translate.given_up import translate_given_up
from portkern.port.translate.inline_ptx import translate_ptx
from portkern.port.translate.names import table
from portkern.port.translate.operands import translate_operands
from portkern.port.translate.pasted import expand_pasted
from portkern.port.translate.renaming import (
    add_headers,
    asks_for_vendor,
    defined_values,
    is_ported,
    names_cuda,
    rename_back,
    rename_headers,
    rename_names,
    warn_of_both,
)
from portkern.port.translate.warps import WARP_FUNCTIONS, translate_warps

__all__ = [
    "Context",
    "DraftChange",
    "Language",
    "Style",
    "Translation",
    "defined_values",
    "language",
    "translate",
]


#: HIP alone, or one source for HIP's compiler and CUDA's.
Style = Literal["hip", "single_source"]
#: What a file names; ``both`` may also be neither.
Language = Literal["hip", "cuda", "both"]


@dataclass(frozen=True)
class Translation:
    """``names`` are CUDA's that stay in a source for both, with HIP's for each."""

    text: str
    changes: tuple[DraftChange, ...]
    hazards: tuple[Hazard, ...]
    names: Mapping[str, str] = field(default_factory=dict)


def language(text: str, context: Context = NOTHING_AROUND) -> Language:
    """The language of a text, by the headers and names of the runtimes in it, but for those that
    are the library's own. A text that asks which vendor's compiler reads it is of both."""
    draft = Draft(SourceCode(text), "")
    hip, cuda = is_ported(draft, table(), context), names_cuda(draft, table(), context)
    if hip == cuda or asks_for_vendor(draft):
        return "both"
    return "hip" if hip else "cuda"


def translate(
    text: str,
    name: str,
    *,
    to: Literal["hip", "cuda"] = "hip",
    style: Style = "hip",
    context: Context = NOTHING_AROUND,
) -> Translation:
    """The source of a file called ``name``, a path from the library's root, in the other language.
    What is in it already comes back as it is, so that translating twice is translating once. So
    does a header of a library in that language that names neither."""
    draft = Draft(SourceCode(text), name)
    ported = is_ported(draft, table(), context)
    ported = ported or (context.hip and not names_cuda(draft, table(), context))
    if to == "hip":
        if ported:
            warn_of_both(draft, table(), context)
            return Translation(text, (), tuple(draft.hazards))
        spelled, pasted = expand_pasted(text, context.pasting, _is_cuda)
        spelled, broken = closed_up(spelled)
        if pasted or broken:
            draft = Draft(SourceCode(spelled), name, [*pasted, *broken])
        if translate_ptx(draft):  # into CUDA's functions too, which the rules below translate
            draft = Draft(SourceCode(draft.render()), name, draft.changes)
        kept: dict[str, str] | None = {} if style == "single_source" else None
        _to_hip(draft, kept, context)
        if kept is not None:
            return _for_both(text, draft, kept)
    elif ported:
        rename_back(draft, table())
        translate_back(draft)
    changes = tuple(sorted(draft.changes, key=lambda change: change.line))
    return Translation(draft.render() if changes else text, changes, tuple(sorted(draft.hazards)))


def _is_cuda(name: str) -> bool:
    """Whether the translation does anything with the name."""
    known = table().names.get(name)
    return name in WARP_FUNCTIONS | DEVICE_FUNCTIONS or (
        known is not None and known.hip != known.cuda
    )


def _for_both(original: str, draft: Draft, kept: Mapping[str, str]) -> Translation:
    hip = draft.render()
    text = single_source.combined(original, hip, draft.name, kept)
    changes = tuple(sorted(draft.changes, key=lambda change: change.line))
    return Translation(text, changes, tuple(sorted(draft.hazards)), kept)


def _to_hip(draft: Draft, kept: dict[str, str] | None, context: Context) -> None:
    present = rename_headers(draft, table(), context)
    translate_conditions(draft)
    translate_device(draft)
    translate_operands(draft)
    translate_warps(draft)
    translate_dependent(draft, context.declared)
    translate_given_up(draft)
    used = rename_names(draft, table(), kept, own=context.macros)
    add_headers(draft, present, used=used)
