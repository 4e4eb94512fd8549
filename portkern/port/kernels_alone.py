"""The object of a file's kernels, without its host code, whose headers this machine lacks.

A template that the host's code would have an instance of gets the one that its proof has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from portkern.port.device_build import DeviceBuilt, NotBuilt
from portkern.port.partial_build import Compile, errors_of
from portkern.port.proof.infer import SCALES, Refused, propose
from portkern.port.proof.outcome import ProofSource
from portkern.port.proof.slice import Slices, written
from portkern.port.proof.texts import SourceTexts

_MOST_TRIES = 12
#: What headers of large libraries bring along, and files use without a word.
_STANDARD = (
    "algorithm array cmath cstdint cstdio cstdlib cstring functional iostream limits map memory "
    "mutex numeric optional set sstream stdexcept string tuple unordered_map utility vector"
).split()


def build(
    source: ProofSource, header: str, compile_file: Compile, workdir: Path
) -> DeviceBuilt | None:
    """``header`` is the first that is absent. None where no kernel can be built without."""
    texts = SourceTexts(source)
    slices = Slices([text.text for text in texts.files])
    kept = {kernel.name for kernel in texts.kernels}
    standard = workdir / "standard_headers.h"
    workdir.mkdir(parents=True, exist_ok=True)
    standard.write_text("".join(f"#include <{name}>\n" for name in _STANDARD), encoding="utf-8")
    without, rejected = [header], dict[str, NotBuilt]()
    for attempt in range(_MOST_TRIES):
        if not kept:
            break
        own, *headers = slices.of(kept, without, str(standard))
        text = "\n".join([own, *_instances(texts, kept), ""])
        made = compile_file(written(texts, [text, *headers], workdir / str(attempt)))
        if isinstance(made, DeviceBuilt):
            listed = ", ".join(f"<{name}>" for name in without)
            remark = f"host code was left out, for this machine lacks {listed}"
            return replace(made, rejected=rejected, remark=remark)
        if made.header and made.header not in without:
            without.append(made.header)
            continue
        accused = {
            name: NotBuilt(words, made.log)
            for place, words in errors_of(made, texts)
            for name in slices.users(*place, kept)
        }
        if not accused:
            break
        rejected |= accused
        kept -= accused.keys()
    return None


def _instances(texts: SourceTexts, kernels: Collection[str]) -> Iterator[str]:
    """Lines that take the address of each template's instance, so that the compiler writes it
    out."""
    for number, kernel in enumerate(texts.kernels):
        if kernel.name not in kernels or not kernel.template:
            continue
        case = propose(kernel, texts, SCALES[0], warp=64)
        if isinstance(case, Refused) or not case.template:
            continue
        file = texts.file_of(kernel.name) or texts.own
        name = f"{file.scope_of(kernel)}{kernel.name}<{', '.join(case.template)}>"
        yield f"auto* portkern_instance_{number} = &{name};"
