"""``typename`` and ``template`` before names that depend on a template's parameters, which clang
asks to be told."""

from __future__ import annotations

from portkern.cuda_source.dependent import unsaid
from portkern.cuda_source.names import DeclaredNames, declared_names
from portkern.port.translate.draft import Draft

_WHY = {
    "typename": "a type that depends on a template's parameter is said to be one",
    "template": "a template that depends on a template's parameter is said to be one",
}


def translate_dependent(draft: Draft, of_headers: DeclaredNames) -> None:
    code = draft.code
    for word, first, last in unsaid(code, declared_names(code) | of_headers):
        draft.insert_before(first, f"{word} ")
        shown = code.flat(first, last)
        draft.note(first, shown, f"{word} {shown}", _WHY[word])
