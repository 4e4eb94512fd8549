"""Names that PyTorch's headers had and gave up: a build for AMD has the PyTorch of today."""

from __future__ import annotations

from portkern.port.translate.draft import Draft

_DISPATCH = "AT_DISPATCH_"
_WHY = "PyTorch gave the old name up"


def translate_given_up(draft: Draft) -> None:
    """``AT_DISPATCH_…(x.type(), …)``, which takes no more than a ``ScalarType``, and
    ``AT_CHECK``."""
    text = draft.code.text
    defines = {text[d.begin + 2] for d in draft.code.directives if d.name == "define"}
    for i, token in enumerate(draft.code.tokens):
        if token.text == "AT_CHECK" and token.text not in defines and text[i + 1] == "(":
            draft.rename(i, "TORCH_CHECK", _WHY)
        elif token.text.startswith(_DISPATCH) and token.text not in defines:
            for _, end in draft.arguments(i) or ():
                if text[end - 4] in (".", "->") and text[end - 3 : end] == ["type", "(", ")"]:
                    draft.rename(end - 3, "scalar_type", _WHY)
